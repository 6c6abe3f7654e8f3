-- The journal's first schema.  Released migrations are never edited: a change is a new file.
-- JSON columns hold ASCII JSON, so that undecodable bytes (lone surrogates) survive as \udcXX.

CREATE TABLE meta (
    key TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TRIGGER meta_directory_id_fixed BEFORE UPDATE ON meta WHEN OLD.key = 'directory_id'
BEGIN
    SELECT RAISE(ABORT, 'the directory id is write-once');
END;

CREATE TRIGGER meta_directory_id_kept BEFORE DELETE ON meta WHEN OLD.key = 'directory_id'
BEGIN
    SELECT RAISE(ABORT, 'the directory id is write-once');
END;

-- Which state may follow which.  A test compares it with model.states.TRANSITIONS.
CREATE TABLE state_moves (
    old TEXT NOT NULL,
    new TEXT NOT NULL,
    PRIMARY KEY (old, new)
) STRICT, WITHOUT ROWID;

INSERT INTO state_moves (old, new) VALUES
    ('queued', 'starting'), ('queued', 'running'), ('queued', 'stopping'), ('queued', 'finished'),
    ('queued', 'not_started'), ('queued', 'unknown'), ('queued', 'quarantined'),
    ('starting', 'running'), ('starting', 'stopping'), ('starting', 'finished'),
    ('starting', 'not_started'), ('starting', 'unknown'), ('starting', 'quarantined'),
    ('running', 'stopping'), ('running', 'finished'), ('running', 'not_started'),
    ('running', 'unknown'), ('running', 'quarantined'),
    ('stopping', 'finished'), ('stopping', 'not_started'), ('stopping', 'unknown'),
    ('stopping', 'quarantined'),
    ('quarantined', 'finished'), ('quarantined', 'not_started'), ('quarantined', 'unknown'),
    ('not_started', 'starting');

CREATE TABLE runs (
    serial INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL UNIQUE CHECK (run_id <> ''),
    shard TEXT NOT NULL,
    owner TEXT NOT NULL,
    request_id TEXT NOT NULL CHECK (request_id <> ''),
    state TEXT NOT NULL CHECK (state IN (
        'queued', 'starting', 'running', 'stopping', 'finished', 'not_started', 'unknown', 'quarantined'
    )),
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
    survives_unit_restart INTEGER CHECK (survives_unit_restart IN (0, 1)),
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
    retryable INTEGER NOT NULL DEFAULT 0 CHECK (retryable IN (0, 1)),
    stop_requested INTEGER NOT NULL DEFAULT 0 CHECK (stop_requested IN (0, 1)),
    resolution TEXT,
    log_health TEXT,
    UNIQUE (owner, request_id),
    CHECK (state <> 'finished' OR outcome IS NOT NULL),
    CHECK (outcome IS NULL OR state IN ('finished', 'quarantined')),
    CHECK (state NOT IN ('not_started', 'unknown', 'quarantined') OR reason IS NOT NULL),
    CHECK (receipt IS NULL OR state NOT IN ('queued', 'starting', 'running', 'stopping')),
    CHECK (retryable = 0 OR state = 'not_started')
) STRICT;

CREATE INDEX runs_by_state ON runs (state, serial);

-- What the reconciler looks at: as short as the list of runs that are not over.
CREATE INDEX runs_judged ON runs (serial)
WHERE state IN ('queued', 'starting', 'running', 'stopping', 'quarantined');

CREATE TRIGGER runs_never_deleted BEFORE DELETE ON runs
BEGIN
    SELECT RAISE(ABORT, 'a run is never deleted: its request id is spent for ever');
END;

CREATE TRIGGER runs_request_fixed
BEFORE UPDATE OF serial, run_id, shard, owner, request_id, argv, cwd, env_names, labels, limits,
    completion, digests, key_id, nested_in, created_ns ON runs
BEGIN
    SELECT RAISE(ABORT, 'what was asked for is write-once');
END;

CREATE TRIGGER runs_state_moves BEFORE UPDATE ON runs
WHEN NEW.state IS NOT OLD.state
    AND NOT EXISTS (SELECT 1 FROM state_moves WHERE old = OLD.state AND new = NEW.state)
BEGIN
    SELECT RAISE(ABORT, 'no such transition');
END;

-- Late facts about a settled run are its log_health and an operator's resolution, nothing else;
-- a stop of a run that never started is kept too, since it forbids the retry.
CREATE TRIGGER runs_settled_write_once BEFORE UPDATE ON runs
WHEN OLD.state IN ('finished', 'unknown', 'not_started')
    AND NEW.state IS OLD.state
    AND (NEW.attempt IS NOT OLD.attempt OR NEW.boot_id IS NOT OLD.boot_id
        OR NEW.worker IS NOT OLD.worker OR NEW.program IS NOT OLD.program
        OR NEW.reason IS NOT OLD.reason OR NEW.outcome IS NOT OLD.outcome
        OR NEW.receipt IS NOT OLD.receipt OR NEW.evidence IS NOT OLD.evidence
        OR NEW.retryable IS NOT OLD.retryable
        OR NEW.survives_unit_restart IS NOT OLD.survives_unit_restart
        OR (NEW.stop_requested IS NOT OLD.stop_requested AND OLD.state <> 'not_started'))
BEGIN
    SELECT RAISE(ABORT, 'a settled run is write-once');
END;

CREATE TRIGGER runs_attempt_steps BEFORE UPDATE ON runs
WHEN CASE
    WHEN OLD.state = 'not_started' AND NEW.state = 'starting'
    THEN OLD.retryable = 0 OR OLD.stop_requested = 1 OR NEW.attempt <> OLD.attempt + 1
    ELSE NEW.attempt <> OLD.attempt
END
BEGIN
    SELECT RAISE(ABORT, 'a new attempt follows only a retryable not_started that nobody stopped');
END;

CREATE TRIGGER runs_stop_stays BEFORE UPDATE ON runs
WHEN OLD.stop_requested = 1 AND NEW.stop_requested = 0
BEGIN
    SELECT RAISE(ABORT, 'a stop is never taken back');
END;

CREATE TABLE run_labels (
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    serial INTEGER NOT NULL,
    PRIMARY KEY (name, value, serial)
) STRICT, WITHOUT ROWID;

CREATE TABLE attempts (
    serial INTEGER NOT NULL,
    attempt INTEGER NOT NULL CHECK (attempt >= 1),
    intent_ns INTEGER NOT NULL,
    boot_id TEXT NOT NULL,
    first_seq INTEGER NOT NULL CHECK (first_seq >= 1),
    ended_ns INTEGER,
    ended_state TEXT,
    reason TEXT,
    PRIMARY KEY (serial, attempt)
) STRICT, WITHOUT ROWID;

CREATE TABLE feed (
    position INTEGER PRIMARY KEY,
    time_ns INTEGER NOT NULL,
    serial INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    state TEXT NOT NULL,
    trigger TEXT NOT NULL,
    reason TEXT
) STRICT;

CREATE TRIGGER feed_append_only BEFORE UPDATE ON feed
BEGIN
    SELECT RAISE(ABORT, 'the feed is append-only');
END;

CREATE TRIGGER feed_never_deleted BEFORE DELETE ON feed
BEGIN
    SELECT RAISE(ABORT, 'the feed is append-only');
END;

-- Every word an operator gave; runs.resolution shows the newest.
CREATE TABLE resolutions (
    id INTEGER PRIMARY KEY,
    time_ns INTEGER NOT NULL,
    serial INTEGER NOT NULL,
    document TEXT NOT NULL
) STRICT;

CREATE INDEX resolutions_by_run ON resolutions (serial, id);

CREATE TRIGGER resolutions_append_only BEFORE UPDATE ON resolutions
BEGIN
    SELECT RAISE(ABORT, 'resolutions are append-only');
END;

CREATE TRIGGER resolutions_never_deleted BEFORE DELETE ON resolutions
BEGIN
    SELECT RAISE(ABORT, 'resolutions are append-only');
END;
