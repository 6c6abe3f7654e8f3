-- A start and an end write to as few trees as can be, since each costs its commit a page.  The current
-- attempt's facts are columns of its run, `attempts` has the earlier ones alone, and one index of states
-- serves what three did.
--
-- Conditions name their states with OR: for a longer IN list SQLite builds a tree of its own, each time
-- that a row is checked.

CREATE TABLE runs_next (
    serial INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL UNIQUE CHECK (run_id <> ''),
    shard TEXT NOT NULL,
    owner TEXT NOT NULL,
    request_id TEXT NOT NULL CHECK (request_id <> ''),
    state TEXT NOT NULL CHECK (
        state = 'queued' OR state = 'starting' OR state = 'running' OR state = 'stopping'
        OR state = 'finished' OR state = 'not_started' OR state = 'unknown' OR state = 'quarantined'
    ),
    attempt INTEGER NOT NULL CHECK (attempt >= 1),
    argv TEXT NOT NULL,
    cwd TEXT NOT NULL,
    env_names TEXT NOT NULL,
    labels TEXT NOT NULL,
    limits TEXT NOT NULL,
    completion TEXT NOT NULL,
    digests TEXT NOT NULL,
    key_id TEXT NOT NULL,
    nested_in TEXT,
    survives_unit_restart INTEGER CHECK (survives_unit_restart = 0 OR survives_unit_restart = 1),
    created_ns INTEGER NOT NULL,
    -- from here on: facts of the current attempt
    updated_ns INTEGER NOT NULL,
    boot_id TEXT NOT NULL,
    worker TEXT,
    program TEXT,
    reason TEXT,
    outcome TEXT,
    receipt TEXT,
    evidence TEXT,
    retryable INTEGER NOT NULL DEFAULT 0 CHECK (retryable = 0 OR retryable = 1),
    stop_requested INTEGER NOT NULL DEFAULT 0 CHECK (stop_requested = 0 OR stop_requested = 1),
    resolution TEXT,
    log_health TEXT,
    priority INTEGER NOT NULL DEFAULT 0,
    collected_ns INTEGER,
    intent_ns INTEGER NOT NULL,
    first_seq INTEGER NOT NULL CHECK (first_seq >= 1),
    ended_ns INTEGER,
    UNIQUE (owner, request_id),
    CHECK (state <> 'finished' OR outcome IS NOT NULL),
    CHECK (outcome IS NULL OR state = 'finished' OR state = 'quarantined'),
    CHECK (reason IS NOT NULL OR NOT (state = 'not_started' OR state = 'unknown' OR state = 'quarantined')),
    CHECK (receipt IS NULL
        OR NOT (state = 'queued' OR state = 'starting' OR state = 'running' OR state = 'stopping')),
    CHECK (retryable = 0 OR state = 'not_started'),
    CHECK (ended_ns IS NULL OR state = 'finished' OR state = 'not_started' OR state = 'unknown')
) STRICT;

INSERT INTO runs_next
SELECT runs.*, coalesce(attempts.intent_ns, runs.created_ns), coalesce(attempts.first_seq, 1),
    attempts.ended_ns
FROM runs LEFT JOIN attempts ON attempts.serial = runs.serial AND attempts.attempt = runs.attempt
ORDER BY runs.serial;

-- Those that another attempt followed.
DELETE FROM attempts
WHERE attempt = (SELECT attempt FROM runs WHERE runs.serial = attempts.serial);

DROP TABLE runs;

ALTER TABLE runs_next RENAME TO runs;

CREATE INDEX runs_by_state ON runs (state, serial) WHERE collected_ns IS NULL;

-- What is listed unless somebody asks for the collected ones too.  Each state's come in the order of the
-- index, and are merged: a page of them costs no more because there are more runs.
CREATE VIEW runs_kept AS
SELECT serial FROM runs WHERE state = 'queued' AND collected_ns IS NULL
UNION ALL SELECT serial FROM runs WHERE state = 'starting' AND collected_ns IS NULL
UNION ALL SELECT serial FROM runs WHERE state = 'running' AND collected_ns IS NULL
UNION ALL SELECT serial FROM runs WHERE state = 'stopping' AND collected_ns IS NULL
UNION ALL SELECT serial FROM runs WHERE state = 'finished' AND collected_ns IS NULL
UNION ALL SELECT serial FROM runs WHERE state = 'not_started' AND collected_ns IS NULL
UNION ALL SELECT serial FROM runs WHERE state = 'unknown' AND collected_ns IS NULL
UNION ALL SELECT serial FROM runs WHERE state = 'quarantined' AND collected_ns IS NULL;

CREATE INDEX runs_by_owner ON runs (owner, serial) WHERE collected_ns IS NULL;

-- Unknown runs that may still hold a slot, by the boot that their program ran under.
CREATE INDEX runs_unresolved ON runs (boot_id) WHERE state = 'unknown' AND resolution IS NULL;

CREATE TRIGGER runs_never_deleted BEFORE DELETE ON runs
BEGIN
    SELECT RAISE(ABORT, 'a run is never deleted: its request id is spent for ever');
END;

CREATE TRIGGER runs_request_fixed
BEFORE UPDATE OF serial, run_id, shard, owner, request_id, limits, completion, digests, key_id,
    nested_in, created_ns ON runs
BEGIN
    SELECT RAISE(ABORT, 'what was asked for is write-once');
END;

-- The digests say whether a request is the same; its words go with the log.
CREATE TRIGGER runs_words_fixed BEFORE UPDATE OF argv, cwd, env_names, labels ON runs
WHEN NEW.collected_ns IS NULL
    OR NEW.argv <> '[]' OR NEW.cwd <> '""' OR NEW.env_names <> '[]' OR NEW.labels <> '{}'
BEGIN
    SELECT RAISE(ABORT, 'what was asked for is write-once');
END;

CREATE TRIGGER runs_attempt_fixed BEFORE UPDATE OF priority, intent_ns, first_seq ON runs
WHEN NEW.attempt = OLD.attempt
    AND (NEW.priority <> OLD.priority OR NEW.intent_ns <> OLD.intent_ns OR NEW.first_seq <> OLD.first_seq)
BEGIN
    SELECT RAISE(ABORT, 'what an attempt began with is write-once');
END;

CREATE TRIGGER runs_state_moves BEFORE UPDATE OF state ON runs
WHEN NEW.state IS NOT OLD.state
    AND NOT EXISTS (SELECT 1 FROM state_moves WHERE old = OLD.state AND new = NEW.state)
BEGIN
    SELECT RAISE(ABORT, 'no such transition');
END;

-- Late facts about a settled run are its log_health and an operator's resolution, nothing else;
-- a stop of a run that never started is kept too, since it forbids the retry.  What was learnt of it
-- goes when it is collected, and only then.
CREATE TRIGGER runs_settled_write_once BEFORE UPDATE ON runs
WHEN NEW.state IS OLD.state
    AND (OLD.state = 'finished' OR OLD.state = 'unknown' OR OLD.state = 'not_started')
    AND (NEW.attempt IS NOT OLD.attempt OR NEW.boot_id IS NOT OLD.boot_id
        OR NEW.reason IS NOT OLD.reason OR NEW.outcome IS NOT OLD.outcome
        OR NEW.retryable IS NOT OLD.retryable OR NEW.ended_ns IS NOT OLD.ended_ns
        OR NEW.survives_unit_restart IS NOT OLD.survives_unit_restart
        OR (NEW.stop_requested IS NOT OLD.stop_requested AND OLD.state <> 'not_started')
        OR CASE
            WHEN NEW.collected_ns IS OLD.collected_ns
            THEN NEW.worker IS NOT OLD.worker OR NEW.program IS NOT OLD.program
                OR NEW.receipt IS NOT OLD.receipt OR NEW.evidence IS NOT OLD.evidence
            ELSE coalesce(NEW.worker, NEW.program, NEW.receipt, NEW.evidence) IS NOT NULL
        END)
BEGIN
    SELECT RAISE(ABORT, 'a settled run is write-once');
END;

CREATE TRIGGER runs_attempt_steps BEFORE UPDATE OF state, attempt ON runs
WHEN CASE
    WHEN OLD.state = 'not_started' AND (NEW.state = 'starting' OR NEW.state = 'queued')
    THEN OLD.retryable = 0 OR OLD.stop_requested = 1 OR NEW.attempt <> OLD.attempt + 1
    ELSE NEW.attempt <> OLD.attempt
END
BEGIN
    SELECT RAISE(ABORT, 'a new attempt follows only a retryable not_started that nobody stopped');
END;

CREATE TRIGGER runs_stop_stays BEFORE UPDATE OF stop_requested ON runs
WHEN OLD.stop_requested = 1 AND NEW.stop_requested = 0
BEGIN
    SELECT RAISE(ABORT, 'a stop is never taken back');
END;

CREATE TRIGGER runs_collected_when_over BEFORE UPDATE OF collected_ns ON runs
WHEN NEW.collected_ns IS NOT OLD.collected_ns
    AND (OLD.collected_ns IS NOT NULL
        OR NEW.state IS NOT OLD.state
        OR NOT (OLD.state = 'finished' OR OLD.state = 'not_started')
        OR (OLD.state = 'not_started' AND OLD.retryable = 1 AND OLD.stop_requested = 0))
BEGIN
    SELECT RAISE(ABORT, 'only a run that is over, and is never tried again, is collected, and once');
END;

CREATE TRIGGER runs_collected_stay BEFORE UPDATE ON runs
WHEN OLD.collected_ns IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'a collected run never changes');
END;

CREATE TRIGGER attempts_append_only BEFORE UPDATE ON attempts
BEGIN
    SELECT RAISE(ABORT, 'what an attempt was is write-once');
END;

CREATE TRIGGER attempts_never_deleted BEFORE DELETE ON attempts
BEGIN
    SELECT RAISE(ABORT, 'what an attempt was is write-once');
END;
