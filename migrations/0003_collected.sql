-- A run's log may be collected.  Its row stays: a tombstone that answers a late repeat of the request.

ALTER TABLE runs ADD COLUMN collected_ns INTEGER;

-- What is listed unless somebody asks for the collected ones too.
CREATE INDEX runs_kept ON runs (serial) WHERE collected_ns IS NULL;

DROP INDEX runs_by_state;

CREATE INDEX runs_by_state ON runs (state, serial) WHERE collected_ns IS NULL;

DROP INDEX runs_by_owner;

CREATE INDEX runs_by_owner ON runs (owner, serial) WHERE collected_ns IS NULL;

-- Collected runs whose files may still be there: the next opening finishes what was begun.
CREATE TABLE unswept (
    serial INTEGER PRIMARY KEY
) STRICT;

CREATE TRIGGER runs_collected_when_over BEFORE UPDATE ON runs
WHEN NEW.collected_ns IS NOT OLD.collected_ns
    AND (OLD.collected_ns IS NOT NULL
        OR NEW.state IS NOT OLD.state
        OR OLD.state NOT IN ('finished', 'not_started')
        OR (OLD.state = 'not_started' AND OLD.retryable = 1 AND OLD.stop_requested = 0))
BEGIN
    SELECT RAISE(ABORT, 'only a run that is over, and is never tried again, is collected, and once');
END;

CREATE TRIGGER runs_collected_stay BEFORE UPDATE ON runs
WHEN OLD.collected_ns IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'a collected run never changes');
END;

DROP TRIGGER runs_request_fixed;

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

DROP TRIGGER runs_settled_write_once;

-- As before; besides, what was learnt of a run goes when it is collected, and only then.
CREATE TRIGGER runs_settled_write_once BEFORE UPDATE ON runs
WHEN OLD.state IN ('finished', 'unknown', 'not_started')
    AND NEW.state IS OLD.state
    AND (NEW.attempt IS NOT OLD.attempt OR NEW.boot_id IS NOT OLD.boot_id
        OR NEW.reason IS NOT OLD.reason OR NEW.outcome IS NOT OLD.outcome
        OR NEW.retryable IS NOT OLD.retryable
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
