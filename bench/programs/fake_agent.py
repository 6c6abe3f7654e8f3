"""A fake ACP agent: the prompt is a program's argv as JSON; it runs it and answers ``exit CODE``.

Run with ``python -I -S``; speaks JSON-RPC, one message a line, on its stdio.
"""

import json
import os
import sys

_OPTIONS = [
    {
        "id": name, "name": name, "category": name, "type": "select", "currentValue": value,
        "options": [{"value": value, "name": value}],
    }
    for name, value in (("model", "bench"), ("effort", "low"))
]  # fmt: skip
_CAPABILITIES = {"loadSession": True, "promptCapabilities": {}, "mcpCapabilities": {}}


def main() -> None:
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if "id" in message and "method" in message:
            result = answer(message["method"], message.get("params") or {})
            send({"jsonrpc": "2.0", "id": message["id"], "result": result})


def answer(method: str, params: "dict[str, object]") -> "dict[str, object]":
    if method == "initialize":
        info = {"name": "fake", "version": "1"}
        return {
            "protocolVersion": 1,
            "agentCapabilities": _CAPABILITIES,
            "agentInfo": info,
            "authMethods": [],
        }
    if method in ("session/new", "session/load"):
        return {"sessionId": f"s-{os.getpid()}", "configOptions": _OPTIONS}
    if method == "session/set_config_option":
        return {"configOptions": _OPTIONS}
    if method == "session/prompt":
        text = "exit " + str(run(params))
        update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
        send({
            "jsonrpc": "2.0", "method": "session/update",
            "params": {"sessionId": params["sessionId"], "update": update},
        })  # fmt: skip
        return {"stopReason": "end_turn"}
    return {}


def run(params: "dict[str, object]") -> int:
    prompt = params["prompt"]
    argv = json.loads(prompt[0]["text"])  # type: ignore[index]
    null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1)]
    _, status = os.waitpid(os.posix_spawn(argv[0], argv, dict(os.environ), file_actions=null), 0)
    return os.waitstatus_to_exitcode(status)


def send(message: "dict[str, object]") -> None:
    sys.stdout.buffer.write(json.dumps(message).encode() + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
