"""Real users: processes with uids of their own, and what each of them tries on the other."""

from __future__ import annotations

# It may look into any directory, to get at this Python and these files.  To connect takes more than that.
_LOOKING = ["--inh-caps", "-all,+dac_read_search", "--ambient-caps", "-all,+dac_read_search"]


def as_user(uid: int, *groups: int) -> list[str]:
    """The words before a command that make it this user's."""
    kept = [f"--groups={','.join(map(str, groups))}"] if groups else ["--clear-groups"]
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", *kept, *_LOOKING]


_BEGIN = """
import pathlib
from durable_supervisor import AsyncClient
SOCKET, ME, OTHER, NOBODYS = sys.argv[3:7]
EXCHANGE = pathlib.Path(REPORT).parent

async def refusal(call):
    '''The error, as bytes would tell it.'''
    try:
        answer = await asyncio.wait_for(call(), 30)
    except SupervisorError as error:
        return error.to_dict()
    return {"answered": repr(answer)}

async def first(stream):
    async for one in stream:
        return one
"""

# Each starts a run under the same request id, learns the id of the other's, and tries everything on it.
TRY_EVERYTHING = (
    _BEGIN
    + """
async def lease(run):
    attachment = client.attach(run)
    try:
        return await attachment.lease(steal=True)
    finally:
        await attachment.close()

def verbs(run):
    return {
        "inspect": lambda: client.inspect(run),
        "find": lambda: client.find(run),
        "events": lambda: client.events(run),
        "follow": lambda: first(client.follow(run)),
        "wait": lambda: client.wait(run, timeout=0.1),
        "stop": lambda: client.stop(run, grace=0),
        "signal": lambda: client.signal(run, signal.SIGKILL),
        "write_stdin": lambda: client.write_stdin(run, b"from the other", eof=True),
        "resize": lambda: client.resize(run, 80, 24),
        "resolve": lambda: client.resolve(run, "kill"),
        "attach": lambda: first(client.attach(run)),
        "lease": lambda: lease(run),
    }

RAW = [
    "GET inspect", "GET events", "GET follow", "GET wait?timeout=0", "GET attach?writer=steal", "POST stop",
    "POST signal", "POST resize", "POST resolve", "POST write-stdin", "GET nowhere",
]
UPGRADE = "Connection: Upgrade\\r\\nUpgrade: websocket\\r\\nSec-WebSocket-Version: 13\\r\\n" \\
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\\r\\n"

async def raw(words, run):
    '''What is on the wire, without the time of day.'''
    method, verb = words.split()
    extra = UPGRADE if verb.startswith("attach") else "Connection: close\\r\\n"
    kind = "octet-stream" if verb == "write-stdin" else "json"
    body = {"signal": '{"signal": 9}', "resize": '{"columns": 8, "rows": 8}'}.get(verb, "{}")
    if method == "POST":
        extra += f"Content-Type: application/{kind}\\r\\nContent-Length: {len(body)}\\r\\n"
    reader, writer = await asyncio.open_unix_connection(SOCKET)
    writer.write(f"{method} /v1/runs/{run}/{verb} HTTP/1.1\\r\\nHost: x\\r\\n{extra}\\r\\n".encode())
    if method == "POST":
        writer.write(body.encode())
    lines = []
    head = await asyncio.wait_for(reader.readuntil(b"\\r\\n\\r\\n"), 30)
    (length,) = [int(line[15:]) for line in head.lower().splitlines() if line.startswith(b"content-length:")]
    lines = [line for line in head.splitlines() if not line.startswith(b"Date:")]
    lines.append(await reader.readexactly(length))
    writer.close()
    return b"\\n".join(lines).decode().replace(run, "RUN")

async def the_same(other):
    '''Of every verb and every form of the id: the other's run, and one that there is not.'''
    found = {}
    forms = {"whole": str, "beginning": lambda run: run[:8], "capitals": str.upper}
    for form, change in forms.items():
        theirs, nobodys = change(other), change(NOBODYS)
        mine = verbs(nobodys)
        for name, call in verbs(theirs).items():
            told, expected = await refusal(call), await refusal(mine[name])
            text = json.dumps(told).replace(theirs, "RUN")
            same = text == json.dumps(expected).replace(nobodys, "RUN")
            found[f"{name} {form}"] = [told.get("code"), same]
        for words in RAW:
            told = await raw(words, theirs)
            found[f"{words} {form} raw"] = [told[9:12], told == await raw(words, nobodys)]
    return found

async def own_feed(run):
    '''From the beginning to the answer that our own run is there.'''
    seen = []
    async for entries in client.follow_feed():
        seen += [entry.run_id for entry in entries]
        if run in seen:
            return sorted(set(seen) | {entry.run_id for entry in await client.feed(limit=1000)})

async with AsyncClient.connect(socket=SOCKET) as client:
    command = Command(argv=["sh", "-c", "echo word of " + ME + "; exec cat"], stdin="open")
    run = await client.start(command, request_id="same", labels={"of": ME})
    (EXCHANGE / (ME + ".new")).write_text(run.id)
    (EXCHANGE / (ME + ".new")).rename(EXCHANGE / ME)
    while not (EXCHANGE / OTHER).exists():
        await asyncio.sleep(0.01)
    other = (EXCHANGE / OTHER).read_text()
    claims = {
        "start": lambda: client.start(Command(argv=["true"]), owner=OTHER),
        "start in a namespace": lambda: client.start(Command(argv=["true"]), owner=ME + "/nightly"),
        "list": lambda: client.list(owner=OTHER),
        "feed": lambda: client.feed(owner=OTHER),
        "follow_feed": lambda: first(client.follow_feed(owner=OTHER)),
    }
    operators = {
        "reconcile": client.reconcile,
        "capacity": client.capacity,
        "gc": lambda: client.gc(keep=0),
        "import_": lambda: client.import_("/etc/passwd"),
    }
    seen = await client.list(limit=1000)
    report(
        run=run.id,
        again=(await client.start(command, request_id="same")).id,
        same=await the_same(other),
        listed=[view.id for view in seen.runs],
        labelled=[view.id for view in (await client.list(label=("of", OTHER))).runs],
        feed=await asyncio.wait_for(own_feed(run.id), 30),
        claims={name: (await refusal(call)) for name, call in claims.items()},
        operators={name: (await refusal(call))["code"] for name, call in operators.items()},
        caller=(await client.info()).to_dict()["caller"],
        runs=(await client.info()).to_dict()["runs"],
    )
"""
)

KNOCK = (
    _BEGIN
    + """
async def knock():
    async with AsyncClient.connect(socket=SOCKET, reconnect=0) as client:
        return await client.info()

report(error=await refusal(knock))
"""
)
