-- Queued runs wait in an order; runs are listed by their owner.

ALTER TABLE runs ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;

CREATE INDEX runs_by_owner ON runs (owner, serial);

-- The queue, in the order in which it is served.
CREATE INDEX runs_queued ON runs (priority DESC, serial) WHERE state = 'queued';

-- Unknown runs that may still hold a slot, by the boot that their program ran under.
CREATE INDEX runs_unresolved ON runs (boot_id) WHERE state = 'unknown' AND resolution IS NULL;

-- A retry finds no slot either: it waits like a new run.
INSERT INTO state_moves (old, new) VALUES ('not_started', 'queued');

DROP TRIGGER runs_attempt_steps;

CREATE TRIGGER runs_attempt_steps BEFORE UPDATE ON runs
WHEN CASE
    WHEN OLD.state = 'not_started' AND NEW.state IN ('starting', 'queued')
    THEN OLD.retryable = 0 OR OLD.stop_requested = 1 OR NEW.attempt <> OLD.attempt + 1
    ELSE NEW.attempt <> OLD.attempt
END
BEGIN
    SELECT RAISE(ABORT, 'a new attempt follows only a retryable not_started that nobody stopped');
END;

CREATE TRIGGER runs_priority_fixed BEFORE UPDATE OF priority ON runs
WHEN NEW.priority <> OLD.priority AND NEW.attempt = OLD.attempt
BEGIN
    SELECT RAISE(ABORT, 'the priority of an attempt is write-once');
END;
