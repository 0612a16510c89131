-- One instance, one database. Every table says who writes it and what keeps it
-- right; docs/architecture.md shows them along one spawn.

CREATE TYPE task_state AS ENUM ('queued', 'claimed', 'running', 'awaiting_input', 'paused', 'blocked',
    'in_review', 'approved', 'completed', 'failed', 'cancelled', 'expired', 'unavailable');

CREATE FUNCTION is_terminal(s task_state) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
$$ SELECT s IN ('completed', 'failed', 'cancelled', 'expired', 'unavailable') $$;

-- The one row that says whose database this is. A second identity is refused.
CREATE TABLE instance (
    singleton   boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    id          text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- The validated relation of this instance and one peer. authority says who may
-- ask: 'commands' = we ask them, 'obeys' = they ask us.
CREATE TABLE connections (
    id           uuid PRIMARY KEY,
    peer         text NOT NULL,
    peer_name    text NOT NULL CHECK (peer_name ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    authority    text NOT NULL CHECK (authority IN ('commands', 'obeys')),
    state        text NOT NULL CHECK (state IN ('pending', 'active', 'suspended', 'disconnected', 'rejected', 'revoked')),
    state_reason text NOT NULL DEFAULT '',
    state_by     text NOT NULL DEFAULT '',
    state_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    epoch        bigint NOT NULL DEFAULT 1 CHECK (epoch >= 1),
    link_key     text NOT NULL,              -- public NATS nkey of the dialling side
    link_url     text NOT NULL DEFAULT '',   -- where we dial, when we are the dialling side
    link_pin     text NOT NULL DEFAULT '',   -- SHA-256 of the TLS key we expect there
    invite       uuid,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp()
);
-- A name stays taken while its connection can still come back.
CREATE UNIQUE INDEX connections_name ON connections (peer_name) WHERE state NOT IN ('revoked', 'rejected');
CREATE UNIQUE INDEX connections_peer ON connections (peer, authority) WHERE state NOT IN ('revoked', 'rejected');

-- The last sequence number given to a message that we sent over a connection.
CREATE TABLE sequences (
    conn  uuid PRIMARY KEY REFERENCES connections,
    last  bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);

-- Keys of peers, per connection; never one set for all.
CREATE TABLE keys (
    conn        uuid NOT NULL REFERENCES connections,
    kid         text NOT NULL,
    owner       text NOT NULL,
    use         text NOT NULL CHECK (use IN ('identity', 'signing', 'sealing')),
    pub         bytea NOT NULL CHECK (octet_length(pub) = 32),
    not_before  timestamptz NOT NULL DEFAULT clock_timestamp(),
    not_after   timestamptz NOT NULL DEFAULT 'infinity',
    revoked_at  timestamptz,
    PRIMARY KEY (conn, kid)
);

-- What the commanding side of a connection may ask for.
CREATE TABLE grants (
    conn        uuid PRIMARY KEY REFERENCES connections,
    kinds       text[] NOT NULL,
    runtimes    text[] NOT NULL,
    expires_at  timestamptz NOT NULL DEFAULT 'infinity'
);

-- One-use tokens that let an unknown instance ask for a connection. Only the
-- key derived from a token's secret is kept.
CREATE TABLE invites (
    id          uuid PRIMARY KEY,
    name        text NOT NULL CHECK (name ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    proof_key   bytea NOT NULL,
    uses_left   int NOT NULL CHECK (uses_left >= 0),
    expires_at  timestamptz NOT NULL,
    revoked_at  timestamptz,
    created_by  text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Every authentic message that was received, for as long as it could come
-- again. Its primary key is the replay guard, wire is the evidence.
CREATE TABLE inbox (
    conn         uuid NOT NULL,      -- connections are never deleted; a foreign key would cost a row lock per message
    id           uuid NOT NULL,
    seq          bigint NOT NULL,
    digest       bytea NOT NULL,
    kind         text NOT NULL,
    code         text NOT NULL DEFAULT '',   -- why it had no effect, '' when it had
    re           uuid,
    task         uuid,
    exp          timestamptz NOT NULL,
    received_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    wire         bytea NOT NULL,
    PRIMARY KEY (conn, id),
    UNIQUE (conn, seq)
);
CREATE INDEX inbox_task ON inbox (task, seq) WHERE task IS NOT NULL;
CREATE INDEX inbox_exp ON inbox (exp);

-- Every message that another database has not confirmed yet. Written in the
-- transaction of the decision it tells; closed only by the peer's signed word.
CREATE TABLE outbox (
    id          uuid PRIMARY KEY,
    conn        uuid NOT NULL,
    seq         bigint NOT NULL,
    lane        text NOT NULL CHECK (lane IN ('run', 'ctl', 'evt', 'res')),
    kind        text NOT NULL,
    digest      bytea NOT NULL,
    re          uuid,
    task        uuid,
    exp         timestamptz NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    closed_at   timestamptz,
    wire        bytea NOT NULL,
    UNIQUE (conn, seq)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX outbox_open ON outbox (conn, seq) WHERE closed_at IS NULL;
CREATE INDEX outbox_re ON outbox (conn, re) WHERE re IS NOT NULL;
CREATE INDEX outbox_task ON outbox (task, seq) WHERE task IS NOT NULL;
CREATE INDEX outbox_exp ON outbox (exp);

-- The backlog. State is in no index, so that its changes stay cheap; what can
-- be claimed stands in ready, what waits for a time in due.
CREATE TABLE tasks (
    id                 uuid PRIMARY KEY,
    workspace          text NOT NULL DEFAULT 'main',
    title              text NOT NULL DEFAULT '',
    priority           int NOT NULL DEFAULT 0 CHECK (priority BETWEEN -100 AND 100),
    state              task_state NOT NULL DEFAULT 'queued',
    reason             text NOT NULL DEFAULT '',
    conn               uuid,                          -- who asked; null = this instance
    command            uuid,                          -- the spawn message, and
    command_digest     bytea,                         -- its digest: every answer names both
    lane               text NOT NULL DEFAULT 'default',
    requires           int NOT NULL DEFAULT 0,
    unmet              int NOT NULL DEFAULT 0 CHECK (unmet >= 0),
    attempt            int NOT NULL DEFAULT 0,        -- number of the last attempt
    next_type          text NOT NULL DEFAULT 'initial', -- type of the next one
    epoch              bigint NOT NULL DEFAULT 0,     -- lease epoch: grows at every claim and forced release
    retries            int NOT NULL DEFAULT 0,
    max_retries        int NOT NULL DEFAULT 0,
    reclaims           int NOT NULL DEFAULT 0,
    dispatch_failures  int NOT NULL DEFAULT 0,
    replays            int NOT NULL DEFAULT 0,
    expires_at         timestamptz NOT NULL DEFAULT 'infinity',  -- never started after this
    created_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at         timestamptz,
    ended_at           timestamptz,
    CONSTRAINT ended_is_terminal CHECK (is_terminal(state) = (ended_at IS NOT NULL))
) WITH (fillfactor = 60);

-- What a task is to do and how it ended: large and cold, so beside the task.
CREATE TABLE task_bodies (
    task    uuid PRIMARY KEY REFERENCES tasks ON DELETE CASCADE,
    spec    jsonb NOT NULL,
    result  jsonb
);

-- Interned capability lists: a worker finds out once which of them it can serve.
CREATE TABLE requirement_sets (
    id            int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    capabilities  text[] NOT NULL UNIQUE
);

-- Exactly the claimable tasks, in claim order. Becoming ready inserts, claiming
-- deletes; what waits, is paused or parked is not here.
CREATE TABLE ready (
    workspace   text NOT NULL,
    lane        text NOT NULL,
    requires    int NOT NULL,
    rank        int NOT NULL,          -- minus the priority
    seq         bigint GENERATED ALWAYS AS IDENTITY,
    task        uuid NOT NULL UNIQUE REFERENCES tasks ON DELETE CASCADE,
    expires_at  timestamptz NOT NULL,
    PRIMARY KEY (workspace, lane, requires, rank, seq)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);
CREATE INDEX ready_expiry ON ready (expires_at) WHERE expires_at < 'infinity';

-- Queued tasks that become ready at a time.
CREATE TABLE due (
    at    timestamptz NOT NULL,
    task  uuid PRIMARY KEY REFERENCES tasks ON DELETE CASCADE
);
CREATE INDEX due_at ON due (at);

CREATE TABLE dependencies (
    task        uuid NOT NULL REFERENCES tasks ON DELETE CASCADE,
    dependency  uuid NOT NULL REFERENCES tasks ON DELETE CASCADE,
    PRIMARY KEY (dependency, task),
    CHECK (task <> dependency)
);

-- One claim of a task by a worker.
CREATE TABLE attempts (
    task        uuid NOT NULL REFERENCES tasks ON DELETE CASCADE,
    number      int NOT NULL CHECK (number >= 1),
    epoch       bigint NOT NULL,
    type        text NOT NULL CHECK (type IN ('initial', 'retry', 'reclaim', 'rework', 'replay', 'resume')),
    owner       text NOT NULL,
    claim       uuid NOT NULL,          -- the claim batch: a claimer whose commit's answer was lost finds its tasks by it
    claimed_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at  timestamptz,
    ended_at    timestamptz,
    outcome     text CHECK (outcome IN ('succeeded', 'failed', 'timed_out', 'killed', 'interrupted', 'unavailable', 'superseded')),
    exit        jsonb,
    PRIMARY KEY (task, number),
    CONSTRAINT ended_has_outcome CHECK ((ended_at IS NULL) = (outcome IS NULL))
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX attempts_one_open ON attempts (task) WHERE ended_at IS NULL;
CREATE INDEX attempts_claim ON attempts (claim) WHERE ended_at IS NULL;

-- Who holds which task until when, by this database's clock.
CREATE TABLE leases (
    task     uuid PRIMARY KEY REFERENCES tasks ON DELETE CASCADE,
    attempt  int NOT NULL,
    epoch    bigint NOT NULL,
    owner    text NOT NULL,
    until    timestamptz NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- Kills that were asked for. One that came before its task is a tombstone.
CREATE TABLE kills (
    conn          uuid NOT NULL REFERENCES connections,
    command       uuid NOT NULL,
    digest        bytea NOT NULL,
    task          uuid NOT NULL,
    reason        text NOT NULL,
    grace         interval NOT NULL,
    exp           timestamptz NOT NULL,
    requested_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    answered_at   timestamptz,
    PRIMARY KEY (conn, command)
);
CREATE INDEX kills_task ON kills (task);

-- Agents that ran here or were asked for from here, and their processes.
CREATE TABLE agents (
    id          uuid PRIMARY KEY,
    name        text NOT NULL DEFAULT '',
    runtime     text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE sessions (
    task        uuid NOT NULL,
    attempt     int NOT NULL,
    agent       uuid NOT NULL REFERENCES agents ON DELETE CASCADE,
    pid         int NOT NULL,
    boot_id     text NOT NULL,
    state       text NOT NULL CHECK (state IN ('registered', 'spawning', 'online', 'draining', 'offline', 'retired', 'failed')),
    log_out     bigint NOT NULL DEFAULT 0,   -- bytes of stdout handed to the forwarder
    log_err     bigint NOT NULL DEFAULT 0,
    started_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at    timestamptz,
    PRIMARY KEY (task, attempt),
    FOREIGN KEY (task, attempt) REFERENCES attempts (task, number) ON DELETE CASCADE
) WITH (fillfactor = 70);

-- The last sign of life of each spoke, as it signed it.
CREATE TABLE heartbeats (
    conn         uuid PRIMARY KEY REFERENCES connections,
    at           timestamptz NOT NULL,
    interval_ms  bigint NOT NULL,
    offset_ms    bigint NOT NULL,     -- the spoke's clock minus ours
    body         jsonb NOT NULL
) WITH (fillfactor = 50);

-- The hub's read model of tasks on spokes: what the spoke's signed words say.
CREATE TABLE mirrors (
    task             uuid PRIMARY KEY,
    conn             uuid NOT NULL,
    title            text NOT NULL DEFAULT '',
    priority         int NOT NULL DEFAULT 0,
    state            task_state NOT NULL DEFAULT 'queued',
    reason           text NOT NULL DEFAULT '',
    refusal          jsonb,
    attempt          int NOT NULL DEFAULT 0,
    last_seq         bigint NOT NULL DEFAULT 0,     -- of the newest report that was applied
    command          uuid NOT NULL UNIQUE,
    command_digest   bytea NOT NULL,
    idempotency_key  text UNIQUE,
    request_digest   bytea NOT NULL,
    created_by       text NOT NULL,
    spec             jsonb NOT NULL,
    result           jsonb,
    result_digest    bytea,
    kill             jsonb,
    expires_at       timestamptz NOT NULL,
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    accepted_at      timestamptz,
    started_at       timestamptz,
    ended_at         timestamptz,
    updated_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT ended_is_terminal CHECK (is_terminal(state) = (ended_at IS NOT NULL))
) WITH (fillfactor = 60);
CREATE INDEX mirrors_created ON mirrors (created_at DESC);

-- Output of agents as far as it was reported. (task, attempt, stream, at) names
-- a piece for ever.
CREATE TABLE logs (
    task     uuid NOT NULL,
    attempt  int NOT NULL,
    stream   text NOT NULL CHECK (stream IN ('stdout', 'stderr')),
    at       bigint NOT NULL,
    seq      bigint GENERATED ALWAYS AS IDENTITY,
    data     bytea NOT NULL,
    PRIMARY KEY (task, attempt, stream, at)
);
CREATE INDEX logs_seq ON logs (task, seq);

-- Everything that was decided, refused or changed. Append only.
CREATE TABLE audit (
    seq     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    actor   text NOT NULL,
    action  text NOT NULL,
    object  text NOT NULL DEFAULT '',
    code    text NOT NULL DEFAULT '',
    why     text NOT NULL DEFAULT '',
    conn    uuid,
    message uuid
);
CREATE INDEX audit_object ON audit (object, seq);

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'audit rows are never changed' USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- Terminal states are final, whatever the program does: only an operator's
-- retry leads out, and it is counted. A success is not retried.
CREATE FUNCTION refuse_final() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a row of % is %, which is final', TG_TABLE_NAME, OLD.state
        USING ERRCODE = 'restrict_violation', CONSTRAINT = 'terminal_is_final';
END $$;
CREATE TRIGGER tasks_terminal BEFORE UPDATE ON tasks FOR EACH ROW
    WHEN (is_terminal(OLD.state) AND NEW.state <> OLD.state
          AND NOT (NEW.state = 'queued' AND NEW.replays = OLD.replays + 1 AND OLD.state <> 'completed'))
    EXECUTE FUNCTION refuse_final();

CREATE TRIGGER mirrors_terminal BEFORE UPDATE ON mirrors FOR EACH ROW
    WHEN (is_terminal(OLD.state) AND (NEW.state <> OLD.state OR NEW.result_digest IS DISTINCT FROM OLD.result_digest))
    EXECUTE FUNCTION refuse_final();

-- A revoked connection never comes back; a new peering is a new connection.
CREATE TRIGGER connections_terminal BEFORE UPDATE ON connections FOR EACH ROW
    WHEN (OLD.state IN ('revoked', 'rejected') AND NEW.state <> OLD.state)
    EXECUTE FUNCTION refuse_final();
