-- The whole schema of one instance's database. docs/architecture.md shows the
-- tables along one spawn; docs/decisions say why they are laid out like this.
--
-- goose ends a statement at a line that ends with a semicolon. A function with
-- semicolons inside therefore stands between StatementBegin and StatementEnd.

-- +goose Up

------------------------------------------------------------------- states ---

-- The states of a task. The order matters: those that end a task are the last
-- ones, from 'completed' on.
CREATE TYPE task_state AS ENUM ('queued', 'claimed', 'running', 'awaiting_input', 'paused', 'blocked',
    'in_review', 'approved', 'completed', 'failed', 'cancelled', 'expired', 'unavailable');

CREATE FUNCTION is_terminal(s task_state) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
$$ SELECT s IN ('completed', 'failed', 'cancelled', 'expired', 'unavailable') $$;

-- Every move of a task that the model lists, as the program has them with their
-- triggers (commands.Transitions). The database refuses others.
CREATE TABLE transitions (
    from_state  task_state NOT NULL,
    to_state    task_state NOT NULL,
    PRIMARY KEY (from_state, to_state)
);
INSERT INTO transitions
    SELECT task_state 'queued', unnest(ARRAY['claimed', 'awaiting_input', 'paused', 'blocked', 'in_review', 'completed', 'failed', 'cancelled', 'expired', 'unavailable']::task_state[])
    UNION ALL SELECT 'claimed', unnest(ARRAY['queued', 'running', 'blocked', 'in_review', 'completed', 'failed', 'cancelled', 'expired', 'unavailable']::task_state[])
    UNION ALL SELECT 'running', unnest(ARRAY['queued', 'awaiting_input', 'paused', 'in_review', 'completed', 'failed', 'cancelled', 'expired']::task_state[])
    UNION ALL SELECT 'awaiting_input', unnest(ARRAY['queued', 'running', 'blocked', 'completed', 'failed', 'cancelled', 'expired', 'unavailable']::task_state[])
    UNION ALL SELECT 'paused', unnest(ARRAY['queued', 'running', 'completed', 'failed', 'cancelled', 'expired', 'unavailable']::task_state[])
    UNION ALL SELECT 'blocked', unnest(ARRAY['queued', 'completed', 'failed', 'cancelled', 'unavailable']::task_state[])
    UNION ALL SELECT 'in_review', unnest(ARRAY['queued', 'running', 'approved', 'failed', 'cancelled', 'expired']::task_state[])
    UNION ALL SELECT 'approved', unnest(ARRAY['queued', 'running', 'completed', 'failed', 'cancelled', 'expired']::task_state[])
    UNION ALL SELECT 'failed', unnest(ARRAY['queued']::task_state[])
    UNION ALL SELECT 'cancelled', unnest(ARRAY['queued']::task_state[])
    UNION ALL SELECT 'expired', unnest(ARRAY['queued']::task_state[])
    UNION ALL SELECT 'unavailable', unnest(ARRAY['queued']::task_state[]);

-- A time that a message tells in ms since 1970; null for 0, which says nothing.
CREATE FUNCTION from_ms(ms bigint) RETURNS timestamptz LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
$$ SELECT to_timestamp(nullif(ms, 0) / 1000.0) $$;

-- Whether a connection in state s has ended for good. It is inlined, so the partial
-- indexes of connections serve queries that say NOT has_ended(state).
CREATE FUNCTION has_ended(s text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
$$ SELECT s IN ('revoked', 'rejected') $$;

----------------------------------------------------- instance and its peers ---

-- The one row that says whose database this is. A second identity is refused.
CREATE TABLE instance (
    singleton   boolean PRIMARY KEY DEFAULT true CONSTRAINT there_is_one_instance CHECK (singleton),
    id          text NOT NULL,
    mark        text NOT NULL DEFAULT '',   -- what its data directory had when it was last started: one that differs shows a restore
    keys        bigint NOT NULL DEFAULT 1,  -- version of its key set, grows with every change of own_keys
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- The signing keys of this instance, public halves. Which one signs towards a peer
-- stands in sequences. See docs/decisions/0014.
CREATE TABLE own_keys (
    kid         text PRIMARY KEY,
    pub         bytea NOT NULL,
    made_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    retired_at  timestamptz,                     -- null = the current one
    verifies    interval NOT NULL DEFAULT '0',   -- an old one: for so long, from when a peer learns of its successor
    revoked_at  timestamptz,
    reason      text NOT NULL DEFAULT '',        -- of the revocation
    removed_at  timestamptz,                     -- the private half is gone
    CONSTRAINT pub_has_32_bytes CHECK (octet_length(pub) = 32),
    CONSTRAINT revoked_ones_are_retired CHECK (revoked_at IS NULL OR retired_at IS NOT NULL)
);
CREATE UNIQUE INDEX own_keys_current ON own_keys ((true)) WHERE retired_at IS NULL;

-- The last transaction that each session has committed. One whose commit was not answered is
-- looked up here: see docs/decisions/0010.
CREATE TABLE last_commits (
    session text PRIMARY KEY,                       -- the name that a connection has of its own
    mark    bigint NOT NULL,                        -- of the transaction, in the process that made the connection
    at      timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);

-- The validated relation of this instance and one peer. Rows are never deleted.
CREATE TABLE connections (
    id           uuid PRIMARY KEY,
    peer         text NOT NULL,              -- the peer's instance id
    peer_name    text NOT NULL,              -- what people here call the peer
    authority    text NOT NULL,              -- who may ask: 'commands' = we ask the peer, 'obeys' = the peer asks us
    state        text NOT NULL,
    state_reason text NOT NULL DEFAULT '',   -- why, by whom and when the state was last changed
    state_by     text NOT NULL DEFAULT '',
    state_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    end_told     boolean NOT NULL DEFAULT false, -- the peer has said that it knows of the end
    epoch        bigint NOT NULL DEFAULT 1,  -- grows with a handshake only: docs/decisions/0002
    link_key     text NOT NULL,              -- public NATS nkey of the dialling side
    link_url     text NOT NULL DEFAULT '',   -- where we dial, when we are the dialling side
    link_pin     text NOT NULL DEFAULT '',   -- SHA-256 of the TLS key we expect there
    invite       uuid,                       -- the invite that the peer came with; null = none
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT peer_name_is_a_name CHECK (peer_name ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    CONSTRAINT authority_is_known CHECK (authority IN ('commands', 'obeys')),
    CONSTRAINT state_is_known CHECK (state IN ('pending', 'active', 'suspended', 'disconnected', 'rejected', 'revoked')),
    CONSTRAINT epoch_is_positive CHECK (epoch >= 1)
);
-- A name stays taken while its connection can still come back.
CREATE UNIQUE INDEX connections_name ON connections (peer_name) WHERE NOT has_ended(state);
CREATE UNIQUE INDEX connections_peer ON connections (peer, authority) WHERE NOT has_ended(state);

-- Keys of peers, per connection; never one set for all.
CREATE TABLE keys (
    conn        uuid NOT NULL REFERENCES connections,
    kid         text NOT NULL,                             -- key id, as signed messages name it
    owner       text NOT NULL,                             -- instance id
    use         text NOT NULL,
    pub         bytea NOT NULL,
    not_before  timestamptz NOT NULL DEFAULT clock_timestamp(),
    not_after   timestamptz NOT NULL DEFAULT 'infinity',
    revoked_at  timestamptz,
    version     bigint NOT NULL DEFAULT 1,                 -- identity keys: of the key set that the peer signed last
    PRIMARY KEY (conn, kid),
    CONSTRAINT use_is_known CHECK (use IN ('identity', 'signing', 'sealing')),
    CONSTRAINT pub_has_32_bytes CHECK (octet_length(pub) = 32)
);

-- What the commanding side of a connection may ask for.
CREATE TABLE grants (
    conn        uuid PRIMARY KEY REFERENCES connections,
    kinds       text[] NOT NULL,                           -- of messages, as in agent.spawn
    runtimes    text[] NOT NULL,                           -- of agents, as in exec
    wsp         text NOT NULL DEFAULT 'main',              -- the workspace that messages of either side are in
    weight      int NOT NULL DEFAULT 1,                    -- its share of the claims, beside other connections'
    expires_at  timestamptz NOT NULL DEFAULT 'infinity',
    CONSTRAINT weight_is_sound CHECK (weight BETWEEN 1 AND 1000)
);

-- What a peer that this instance obeys lets start over its connection, as it said last, and until when
-- nothing is started because its newest word may be on its way: from each link on until that is here. See docs/decisions/0032.
CREATE TABLE latches (
    conn        uuid PRIMARY KEY REFERENCES connections,
    number      bigint NOT NULL DEFAULT 0,               -- of its last change there; a lower one is old
    frozen      boolean NOT NULL DEFAULT false,
    reason      text NOT NULL DEFAULT '',
    actor       text NOT NULL DEFAULT '',
    since       timestamptz,
    envelope    bytea,                                   -- the signed heartbeat that said so
    wait_until  timestamptz NOT NULL DEFAULT '-infinity'
);

-- The grants in force: what their connections asked for may be started now. What
-- this instance has for itself needs none. A claim joins them, so this has to be
-- something that the planner can open: a function of a connection would be run
-- for every class.
CREATE VIEW grants_in_force WITH (security_invoker = true) AS
    SELECT g.conn, g.weight FROM connections n JOIN grants g ON g.conn = n.id WHERE n.state = 'active' AND g.expires_at > statement_timestamp()
        AND NOT EXISTS (SELECT FROM latches l WHERE l.conn = n.id AND (l.frozen OR l.wait_until > statement_timestamp()));

-- Tokens that let an unknown instance ask for a connection.
CREATE TABLE invites (
    id          uuid PRIMARY KEY,
    name        text NOT NULL,              -- the peer_name of the connection that comes of it
    proof_key   bytea NOT NULL,             -- derived from the token's secret, which is not kept
    uses_left   int NOT NULL,
    expires_at  timestamptz NOT NULL,
    revoked_at  timestamptz,
    created_by  text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT name_is_a_name CHECK (name ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    CONSTRAINT uses_left_is_no_debt CHECK (uses_left >= 0)
);

-- Tokens by which programs ask this instance over its API.
CREATE TABLE tokens (
    id          text PRIMARY KEY,           -- the part of the text that is no secret
    digest      bytea NOT NULL,             -- SHA-256 of the text, which is not kept
    name        text NOT NULL,              -- what the audit calls who uses it
    role        text NOT NULL,
    workspace   text NOT NULL,              -- * = every one, and the instance itself
    expires_at  timestamptz NOT NULL,
    revoked_at  timestamptz,                -- or when it expired, where its name was given to another one since
    restored    boolean NOT NULL DEFAULT false, -- the database was restored since, and no owner has confirmed it
    used_at     timestamptz,                -- the last time, up to a minute before it
    created_by  text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT id_is_an_id CHECK (id ~ '^[a-z2-7]{12}$'),
    CONSTRAINT digest_has_32_bytes CHECK (octet_length(digest) = 32),
    CONSTRAINT name_is_a_name CHECK (name ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    CONSTRAINT role_is_known CHECK (role IN ('viewer', 'operator', 'worker', 'federation-admin', 'owner')),
    CONSTRAINT workspace_is_a_name CHECK (workspace ~ '^([*]|[a-z0-9][a-z0-9-]{0,62})$')
);
CREATE UNIQUE INDEX tokens_name ON tokens (name) WHERE revoked_at IS NULL;

-- The last sign of life of each spoke, as it signed it.
CREATE TABLE heartbeats (
    conn         uuid PRIMARY KEY REFERENCES connections,
    at           timestamptz NOT NULL,  -- when it arrived, by this database's clock
    interval_ms  bigint NOT NULL,       -- the spoke sends one so often
    offset_ms    bigint NOT NULL,       -- the spoke's clock minus ours
    body         jsonb NOT NULL         -- as the spoke signed it
) WITH (fillfactor = 50);

----------------------------------------------------------------- messages ---

-- The sequence numbers of a connection, one space for each direction. Locked last
-- of all in every transaction.
CREATE TABLE sequences (
    conn    uuid PRIMARY KEY REFERENCES connections,
    last    bigint NOT NULL DEFAULT 0,             -- the last number given to a message of ours
    stored  int8multirange NOT NULL DEFAULT '{}',  -- the numbers of the peer's messages that are or were in the inbox
    -- After a restore from a backup the numbers go on far above what the other
    -- side has; what it has up to here may be unknown to the one that was restored.
    base       bigint NOT NULL DEFAULT 0,          -- of ours
    peer_base  bigint NOT NULL DEFAULT 0,          -- of the peer's
    -- The peer is asked what it was told about tasks in messages of ours from this
    -- number on; 0 = nothing. Until it has said so, what it asked for is frozen.
    recall_from  bigint NOT NULL DEFAULT 0,
    restored_at  timestamptz,                      -- when this side was restored from a backup last, as the peer was asked; null = never
    -- What the peer has said of tasks that are not known here, since the restore or since a person let it go on.
    recalled_unknown bigint NOT NULL DEFAULT 0,    -- how many it has named,
    recalled_lost    bigint NOT NULL DEFAULT 0,    -- and how many that are told to it as lost
    incarnations text[] NOT NULL DEFAULT '{}',     -- of the peer, the newest last: one that comes back shows that two instances have its key
    peer_state   text NOT NULL DEFAULT 'active',   -- of the connection on the peer's side, by whom and why, as audited last
    kid     text NOT NULL,                         -- our key that signs: the newest one that the peer has confirmed
    told    bigint NOT NULL DEFAULT 1,             -- version of our key set that the peer was sent last,
    keyset  uuid,                                  -- in this message; null = in the handshake
    -- What the inbox keeps of the peer's messages: bounded, so that no peer fills the disk.
    kept_rows   bigint NOT NULL DEFAULT 0,
    kept_bytes  bigint NOT NULL DEFAULT 0,         -- of their signed bytes
    emptied     bigint NOT NULL DEFAULT 0,         -- the peer's messages up to this number have left their signed bytes: docs/decisions/0026
    full_since  timestamptz                        -- since when no more of them is kept; null = there is room
) WITH (fillfactor = 50);

-- Which process serves a connection, and until when, by this database's clock.
CREATE TABLE serving (
    conn     uuid PRIMARY KEY REFERENCES connections,
    process  text NOT NULL,
    until    timestamptz NOT NULL
) WITH (fillfactor = 50);

-- Every authentic message that was received, for as long as it could come
-- again. Its primary key is the replay guard.
CREATE TABLE inbox (
    conn         uuid NOT NULL,              -- connections are never deleted; a foreign key would cost a row lock per message
    id           uuid NOT NULL,
    seq          bigint NOT NULL,            -- the sender's number
    digest       bytea NOT NULL,             -- SHA-256 of its header
    kind         text NOT NULL,
    code         text NOT NULL DEFAULT '',   -- why it had no effect, '' when it had
    re           uuid,                       -- the message it answers
    task         uuid,
    exp          timestamptz NOT NULL,       -- refused after this
    received_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    envelope     bytea NOT NULL,             -- the signed bytes: the evidence; '' where it was refused, or is too old
    PRIMARY KEY (conn, id),
    UNIQUE (conn, seq)
);
CREATE INDEX inbox_task ON inbox (task, seq) WHERE re IS NOT NULL;   -- of reports: who gets commands does not ask by task
CREATE INDEX inbox_re ON inbox (re) WHERE re IS NOT NULL;
CREATE INDEX inbox_exp ON inbox (exp);
CREATE INDEX inbox_refused ON inbox (conn, seq) WHERE re IS NOT NULL AND code <> '';   -- reports that their sender is told of
CREATE INDEX inbox_keysets ON inbox (conn, seq) WHERE kind = 'peer.keyset';              -- so is the newest of these

-- What a peer has refused of this instance's reports, as it says.
CREATE TABLE refused (
    conn     uuid NOT NULL,
    seq      bigint NOT NULL,            -- number of the report
    kind     text NOT NULL,
    code     text NOT NULL,              -- why
    task     uuid,
    at       timestamptz NOT NULL DEFAULT clock_timestamp(),   -- when it was said first
    PRIMARY KEY (conn, seq)
);
CREATE INDEX refused_task ON refused (task);
CREATE INDEX refused_at ON refused (at);

-- Every message to a peer, for as long as it may have to be sent. Written in the
-- transaction of the decision it tells, and not changed by its confirmation: that
-- stands in confirmed.
CREATE TABLE outbox (
    conn        uuid NOT NULL,
    seq         bigint NOT NULL,             -- from sequences
    id          uuid NOT NULL UNIQUE,
    queue       text NOT NULL,               -- of the connection: orders, controls, events, results
    kind        text NOT NULL,
    digest      bytea NOT NULL,              -- SHA-256 of its header
    body        bytea NOT NULL DEFAULT '',   -- SHA-256 of its body: answers name it
    re          uuid,                        -- the message it answers
    task        uuid,
    exp         timestamptz NOT NULL,        -- the peer refuses it after this
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    envelope    bytea NOT NULL,              -- the signed bytes
    PRIMARY KEY (conn, seq),
    CONSTRAINT queue_is_known CHECK (queue IN ('run', 'ctl', 'evt', 'res'))
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX outbox_re ON outbox (re) WHERE re IS NOT NULL;
CREATE INDEX outbox_controls ON outbox (conn, seq) WHERE queue = 'ctl';   -- the newest is told on each new link
CREATE INDEX outbox_keysets ON outbox (conn, seq) WHERE kind = 'peer.keyset';   -- after a change of keys each comparison looks at them

-- Which of our numbers the peer has confirmed: a set, closed only by the peer's
-- signed word, or with the connection. See docs/decisions/0020.
CREATE TABLE confirmed (
    conn     uuid PRIMARY KEY REFERENCES connections,
    numbers  int8multirange NOT NULL DEFAULT '{}'   -- of a connection that has ended: all
) WITH (fillfactor = 50);

-- What is added of a set of numbers where all of it would leave more ranges than most: what joins
-- or lengthens ranges, and the lowest of the rest. Both sets are walked through once, side by side: to look
-- into one for each range of the other would read all of it each time.
CREATE FUNCTION fitting(had int8multirange, more int8multirange, most bigint) RETURNS int8multirange LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT coalesce(range_agg(r) FILTER (WHERE fresh AND (joins OR apart <= most - there)), '{}') FROM (
        SELECT r, fresh, joins, count(*) FILTER (WHERE fresh AND NOT joins) OVER (ORDER BY r) AS apart, count(*) FILTER (WHERE NOT fresh) OVER () AS there FROM (
            SELECT r, fresh, coalesce(lag(upper(r)) OVER side = lower(r), false) OR coalesce(lead(lower(r)) OVER side = upper(r), false) AS joins
            FROM (SELECT r, false AS fresh FROM unnest(had) AS r UNION ALL SELECT r, true FROM unnest(more - had) AS r) AS sides WINDOW side AS (ORDER BY r)) AS parts) AS counted
$$;

-- The set as it was at a few earlier times: it says how long ago something was
-- confirmed.
CREATE TABLE confirmed_before (
    conn     uuid NOT NULL,
    at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    numbers  int8multirange NOT NULL,
    PRIMARY KEY (conn, at)
);

-- The gaps of the set: numbers from one up to another, without that.
CREATE VIEW unconfirmed WITH (security_invoker = true) AS
    SELECT c.conn, lower(gap) AS first, coalesce(upper(gap), 9223372036854775807) AS below FROM confirmed c, unnest('{[1,)}'::int8multirange - c.numbers) AS gap;

-- What is sent until the peer confirms it. It is looked for gap by gap (OFFSET keeps the
-- planner to that): what was confirmed costs nothing, nor does a number that never will be.
CREATE VIEW open_outbox WITH (security_invoker = true) AS
    SELECT o.* FROM unconfirmed u, LATERAL (SELECT * FROM outbox WHERE conn = u.conn AND seq >= u.first AND seq < u.below OFFSET 0) AS o;

-- Kills that were asked for. One whose task is not here is a tombstone: it came
-- before its task, or its task was pruned.
CREATE TABLE kills (
    conn          uuid NOT NULL REFERENCES connections,   -- whose task it is
    actor         text NOT NULL DEFAULT '',  -- the user of this host who asked; '' = the connection, by a message
    command       uuid NOT NULL,             -- that message, and
    digest        bytea NOT NULL,            -- SHA-256 of its body; the host's own word has an id and no digest
    task          uuid NOT NULL,
    reason        text NOT NULL,
    grace         interval NOT NULL,         -- between asking the agent to end and ending it
    cancel        text NOT NULL DEFAULT '',  -- it is a cancel: 'now', or 'after' the attempt that runs
    exp           timestamptz NOT NULL,
    requested_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    answered_at   timestamptz,
    tombstone     boolean NOT NULL,          -- goes when it has expired; the others stay as long as their tasks
    PRIMARY KEY (conn, command)
);
CREATE INDEX kills_task ON kills (task);
CREATE INDEX kills_tombstones ON kills (exp) WHERE tombstone;

-- Whether a task is to stand still, as whoever asked for it or this host said last. One whose task is not here came
-- before it.
CREATE TABLE pauses (
    conn    uuid NOT NULL REFERENCES connections,   -- whose task it is
    task    uuid NOT NULL,
    number  bigint NOT NULL,            -- of that word; a lower one is old
    paused  boolean NOT NULL,
    reason  text NOT NULL,
    actor   text NOT NULL,
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    times   int NOT NULL,               -- that it was paused, which are bounded: each is told
    again   int NOT NULL DEFAULT 0,     -- that it was told how it stands although nothing changed, which are bounded, too
    early   timestamptz,                -- goes after this, should its task not come; null = that is here
    PRIMARY KEY (task, conn)
);
CREATE INDEX pauses_early ON pauses (early) WHERE early IS NOT NULL;

-- Attempts that had started before this database was restored from a backup, as
-- the one who asked for the task recalls. They are taken over, never started. A task
-- that is not here and had started none is noted, too: it is told once as lost.
CREATE TABLE recalled (
    task     uuid NOT NULL,
    conn     uuid NOT NULL,             -- who recalls it; of the tasks of others it says nothing
    attempt  int NOT NULL,              -- the last one of them; 0 = none had started
    over     boolean NOT NULL,          -- it has ended, or there is none, and the next one may start
    reason   text NOT NULL DEFAULT '',  -- 'cancel_requested' = it was cancelled, and may finish; no attempt follows
    at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (task, conn)
);

------------------------------------------------------------------ backlog ---

-- What decides whether a task may be claimed now and by whom, once for all the
-- tasks that have it in common. A paused lane, a spent budget or a capability
-- that a claimer lacks keeps whole classes out of its sight; no task of theirs
-- is touched, and none stands in the way of another. See docs/decisions/0006.
CREATE TABLE classes (
    id            int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    workspace     text NOT NULL,
    lane          text NOT NULL,
    kind          text NOT NULL,          -- 'agent' = run by a spoke, 'card' = worked on by whoever claims it
    capabilities  text[] NOT NULL,        -- a claimer needs all of them
    account       text NOT NULL,          -- who pays, '' = nobody in particular
    conn          uuid,                   -- who asked; null = this instance
    only_task     uuid,                   -- a task with a budget of its own
    sizes         jsonb NOT NULL,         -- of its tasks' estimates: dimension to k, for amounts from 16^k to below 16^(k+1) millionths
    digest        bytea NOT NULL,         -- of all of the above: arrays are too long for an index
    seen          timestamptz NOT NULL DEFAULT clock_timestamp(),   -- when a task got it last, within an hour
    UNIQUE (workspace, digest),
    CONSTRAINT kind_is_known CHECK (kind IN ('agent', 'card'))
);
CREATE INDEX classes_seen ON classes (seen);
CREATE INDEX classes_lane ON classes (workspace, lane);

CREATE FUNCTION class_digest(ws text, l text, k text, caps text[], acc text, c uuid, only_t uuid, sz jsonb) RETURNS bytea LANGUAGE sql STABLE AS
$$ SELECT sha256(convert_to(jsonb_build_array(ws, l, k, to_jsonb(caps), acc, c, only_t, sz)::text, 'UTF8')) $$;

-- Finds or makes a class. Two callers at once get the same one.
-- +goose StatementBegin
CREATE FUNCTION intern_class(ws text, l text, k text, caps text[], acc text, c uuid, only_t uuid, sz jsonb) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    d bytea := class_digest(ws, l, k, caps, acc, c, only_t, sz);
    this int;
    fresh boolean;
BEGIN
    LOOP
        SELECT id, seen > clock_timestamp() - interval '1 hour' INTO this, fresh FROM classes WHERE workspace = ws AND digest = d;
        IF FOUND AND NOT fresh THEN
            UPDATE classes SET seen = clock_timestamp() WHERE id = this; -- one that is pruned at this moment is made again
        END IF;
        IF FOUND THEN RETURN this; END IF;
        INSERT INTO classes (workspace, lane, kind, capabilities, account, conn, only_task, sizes, digest)
        VALUES (ws, l, k, caps, acc, c, only_t, sz, d) ON CONFLICT DO NOTHING RETURNING id INTO this;
        IF FOUND THEN RETURN this; END IF;
    END LOOP;
END $$;
-- +goose StatementEnd

-- The tasks of all workspaces. State is in no index, so that its changes stay
-- cheap: what can be claimed stands in ready. While an attempt holds a task, its row
-- stays as the claim found it: state is queued, attempt and epoch are those of the
-- last attempt that has ended. The rest says the lease; whoever asks how a task
-- stands asks the view standing.
CREATE TABLE tasks (
    id                 uuid PRIMARY KEY,
    seq                bigint GENERATED BY DEFAULT AS IDENTITY,     -- age, also after a retry
    workspace          text NOT NULL DEFAULT 'main',
    class              int NOT NULL,
    lane               text NOT NULL DEFAULT 'default',             -- of its class
    estimate           jsonb,                                       -- what an attempt reserves: dimension to millionths
    key                text,                                        -- the caller's own name for it
    title              text NOT NULL DEFAULT '',
    phase              text NOT NULL DEFAULT '',                    -- a free label
    priority           int NOT NULL DEFAULT 0,                      -- higher is claimed sooner
    state              task_state NOT NULL DEFAULT 'queued',
    reason             text NOT NULL DEFAULT '',                    -- why it is in this state
    conn               uuid,                                        -- who asked; null = this instance
    command            uuid,                                        -- the spawn message, and
    command_digest     bytea,                                       -- SHA-256 of its body: every answer names both
    idempotency_key    text,                                        -- of the request that created it, and
    request_digest     bytea,                                       -- what it asked for: the same key with another request is refused
    unmet              int NOT NULL DEFAULT 0,                      -- dependencies that are not met, and one more while inputs are missing
    on_failed_dep      text NOT NULL DEFAULT 'hold',                -- what to do when a dependency ends without success
    not_before         timestamptz,                                 -- never ready before this
    expires_at         timestamptz NOT NULL DEFAULT 'infinity',     -- never started after this
    attempt            int NOT NULL DEFAULT 0,                      -- number of the last attempt that has ended
    next_type          text NOT NULL DEFAULT 'initial',             -- type of the next one
    epoch              bigint NOT NULL DEFAULT 0,                   -- lease epoch: grows with every attempt and every move by hand
    retries            int NOT NULL DEFAULT 0,                      -- new attempts after a failure, or the loss of an agent
    max_retries        int NOT NULL DEFAULT 0,
    backoff            interval,                                    -- before the first of them at most; null = the usual one
    last_error         jsonb,                                       -- how the last attempt failed: code, text, attempt, at; null = none has, or one after it has succeeded
    max_losses         int,                                         -- retries after the loss of an agent; null = no agent: a loss is a reclaim
    reclaims           int NOT NULL DEFAULT 0,                      -- new attempts after a worker was lost, or an agent not begun
    parks              int NOT NULL DEFAULT 0,                      -- new attempts after a limit of somebody else's: no retry is spent
    replays            int NOT NULL DEFAULT 0,                      -- retries by hand
    reworks            int,                                         -- how often a review has sent it back; null = what it delivers is not reviewed
    created_by         text NOT NULL DEFAULT '',
    created_with       uuid,                                        -- the act that created it with others, as the audit names it
    created_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at         timestamptz,
    ended_at           timestamptz,
    -- The attempt that it ended with: attempt and epoch above are its own. Null where it ended while it waited.
    last_type          text,
    last_owner         text,
    last_claim         uuid,
    last_claimed_at    timestamptz,
    last_started_at    timestamptz,
    last_outcome       text,
    last_exit          jsonb,                                       -- how the agent's process ended
    -- The 40 bits of the short id. A column, as row-level security lets no expression of the id use an index.
    short              bytea NOT NULL GENERATED ALWAYS AS (substring(uuid_send(id) FROM 12)) STORED,
    -- One check for all columns: every update of a row prepares all its checks anew.
    CONSTRAINT task_is_sound CHECK ((state >= 'completed') = (ended_at IS NOT NULL) AND priority BETWEEN -100 AND 100 AND unmet >= 0
        AND (key IS NULL OR octet_length(key) <= 200) AND on_failed_dep IN ('hold', 'cancel', 'ignore'))
) WITH (fillfactor = 45);   -- room for a second version of every row of a page, a longer one: an end changes no index
CREATE UNIQUE INDEX tasks_key ON tasks (workspace, key) WHERE key IS NOT NULL;
CREATE UNIQUE INDEX tasks_idempotency ON tasks (workspace, idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX tasks_class ON tasks (class, id);
CREATE INDEX tasks_short ON tasks (short);

-- What is the same in two orders of one task, whose environments are sealed anew each time, and whose traces may differ.
CREATE FUNCTION without_box(spec jsonb) RETURNS jsonb LANGUAGE sql IMMUTABLE
    RETURN spec #- '{sealed,key}' #- '{sealed,box}' #- '{trace}';

-- What a task is to do and how it ended: large and cold, so beside the task. No
-- foreign key: it costs as much as the row, and the same statement writes both.
CREATE TABLE task_bodies (
    task        uuid PRIMARY KEY,
    workspace   text NOT NULL,
    body        text NOT NULL DEFAULT '',    -- what a card says
    spec        jsonb,                       -- what an agent is started with; null for a card
    acceptance  jsonb,                       -- when a card counts as done: a list or an object
    result      jsonb,                       -- how it ended, or what was delivered for review
    left_work   jsonb,                       -- what its attempts have left until now, while it goes on: bundle, kept
    review      jsonb                        -- the last one: of which attempt, what came of it, why, by whom, when
);

-- Which task waits for which. An edge is met when the dependency has completed,
-- or has ended at all for a task that ignores failures.
CREATE TABLE dependencies (
    task        uuid NOT NULL REFERENCES tasks ON DELETE CASCADE,
    dependency  uuid NOT NULL REFERENCES tasks ON DELETE CASCADE,
    workspace   text NOT NULL,
    met         boolean NOT NULL DEFAULT false,
    PRIMARY KEY (dependency, task),
    CONSTRAINT no_task_waits_for_itself CHECK (task <> dependency)
);
CREATE INDEX dependencies_task ON dependencies (task, dependency);

-- A task that has not ended stands in exactly one of four places: ready, due,
-- parked, leases.

-- Exactly the tasks that can be claimed, in claim order. Becoming ready inserts,
-- claiming deletes.
CREATE TABLE ready (
    class       int NOT NULL,
    rank        int NOT NULL,             -- minus the priority
    seq         bigint NOT NULL,          -- age
    task        uuid NOT NULL,
    workspace   text NOT NULL,
    lane        text NOT NULL,
    phase       text NOT NULL DEFAULT '',
    expires_at  timestamptz NOT NULL,
    estimate    jsonb,                    -- the task's
    -- What a claim answers and leases: it reads no task, except where a body or a message is to be read.
    attempt     int NOT NULL DEFAULT 1,   -- number of the attempt that a claim makes, and
    epoch       bigint NOT NULL DEFAULT 1,
    type        text NOT NULL DEFAULT 'initial',
    key         text,                     -- the task's
    title       text NOT NULL DEFAULT '',
    body        boolean NOT NULL DEFAULT false,   -- it has one
    PRIMARY KEY (workspace, class, rank, seq)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX ready_expiry ON ready (expires_at) WHERE expires_at < 'infinity';
-- Lists show the newest first, of a workspace, or of one of its lanes or phases.
CREATE INDEX ready_newest ON ready (workspace, task);
CREATE INDEX ready_lane ON ready (workspace, lane, task);
CREATE INDEX ready_phase ON ready (workspace, phase, task) WHERE phase <> '';

-- Queued tasks that become ready at a time.
CREATE TABLE due (
    task       uuid PRIMARY KEY,
    workspace  text NOT NULL,
    lane       text NOT NULL,
    phase      text NOT NULL DEFAULT '',
    at         timestamptz NOT NULL,
    made_at    timestamptz                -- since when it waits for a time; null = for a moment that somebody has named
);
CREATE INDEX due_at ON due (at);
CREATE INDEX due_made ON due (made_at) WHERE made_at IS NOT NULL;
CREATE INDEX due_newest ON due (workspace, task DESC NULLS LAST);
CREATE INDEX due_lane ON due (workspace, lane, task DESC NULLS LAST);
CREATE INDEX due_phase ON due (workspace, phase, task DESC NULLS LAST) WHERE phase <> '';

-- Tasks that wait for another task, for inputs or for a person.
CREATE TABLE parked (
    task       uuid PRIMARY KEY,
    workspace  text NOT NULL,
    lane       text NOT NULL,
    phase      text NOT NULL DEFAULT '',
    why        text NOT NULL,             -- 'deps' = for other tasks or for inputs; else the task's state
    since      timestamptz NOT NULL DEFAULT clock_timestamp(),
    input      boolean NOT NULL DEFAULT false,   -- inputs of its order are to be fetched
    expires_at timestamptz NOT NULL DEFAULT 'infinity',   -- of one that was never started and is in no other's hands
    CONSTRAINT why_is_known CHECK (why IN ('deps', 'blocked', 'paused', 'awaiting_input', 'in_review', 'approved'))
);
CREATE INDEX parked_newest ON parked (workspace, why, task DESC NULLS LAST);
CREATE INDEX parked_lane ON parked (workspace, lane, why, task DESC NULLS LAST);
CREATE INDEX parked_phase ON parked (workspace, phase, why, task DESC NULLS LAST) WHERE phase <> '';
CREATE INDEX parked_input ON parked (task) WHERE input;
CREATE INDEX parked_expiry ON parked (expires_at) WHERE expires_at < 'infinity';

-- Bytes that are held here beside the messages, by their digest as messages have it: what somebody has put here to be ordered,
-- and what came from a peer. The bytes are in the data directory.
CREATE TABLE blobs (
    digest  text NOT NULL,
    owner   text NOT NULL,      -- "ws/" and a workspace, or the id of the connection that it came over: one is none for another
    size    bigint NOT NULL,
    at      timestamptz NOT NULL DEFAULT clock_timestamp(),   -- when it was put here, or ordered last
    PRIMARY KEY (digest, owner)
);
CREATE INDEX blobs_at ON blobs (at);
CREATE INDEX blobs_of ON blobs (owner) INCLUDE (size);

-- Which task that a peer has asked for needs which blob to begin, or has left it.
CREATE TABLE blob_uses (
    task    uuid NOT NULL,
    conn    uuid NOT NULL,                    -- over which it was asked for
    digest  text NOT NULL,
    result  boolean NOT NULL DEFAULT false,   -- it has left it
    size    bigint NOT NULL,
    brought text NOT NULL DEFAULT '' CHECK (brought IN ('', 'due', 'held', 'refused')),   -- to the hub that asked for the task: it is to be, the hub holds it, or does not take it
    again   timestamptz NOT NULL DEFAULT '-infinity',   -- when it is offered to the hub next, where that does not take it
    PRIMARY KEY (task, digest, result)
);
CREATE INDEX blob_uses_digest ON blob_uses (digest, conn);
CREATE INDEX blob_uses_inputs ON blob_uses (conn, digest, size) WHERE NOT result;
CREATE INDEX blob_uses_due ON blob_uses (conn, again, task) WHERE brought IN ('due', 'refused');
CREATE INDEX blob_uses_held ON blob_uses (conn) WHERE brought = 'held';

-- How a hub has named what it holds of blobs, when it was last asked whether it has all that it is to hold.
CREATE TABLE hub_blobs (
    conn uuid PRIMARY KEY,
    name text NOT NULL
);

-- Which blob an order needs that this instance has given.
CREATE TABLE order_inputs (
    task   uuid NOT NULL,
    digest text NOT NULL,
    size   bigint NOT NULL,
    PRIMARY KEY (task, digest)
);
CREATE INDEX order_inputs_digest ON order_inputs (digest);

-- Which blob the results of a peer name, late ones too: it is to bring that.
CREATE TABLE peer_work (
    conn   uuid NOT NULL,
    digest text NOT NULL,
    task   uuid NOT NULL,
    size   bigint NOT NULL,
    PRIMARY KEY (conn, digest, task)
);
CREATE INDEX peer_work_digest ON peer_work (digest);
CREATE INDEX peer_work_task ON peer_work (task);

-- The open attempt of a task: who holds it until when, by this database's
-- clock. One per task, by its primary key. It is also the record of the claim
-- grant and of what the claim reserved, so neither can outlive it. There are as
-- many as there is work under way, so what people look at may read all.
CREATE TABLE leases (
    task        uuid PRIMARY KEY,
    workspace   text NOT NULL,
    lane        text NOT NULL,
    conn        uuid,                     -- who asked for the task; null = this instance
    attempt     int NOT NULL,
    epoch       bigint NOT NULL,          -- grows with every release by force, which makes the fences before stale
    reason      text NOT NULL DEFAULT '', -- why the task is being killed
    type        text NOT NULL,            -- why there is this attempt
    owner       text NOT NULL,
    claim       uuid NOT NULL,            -- the claim batch: a claimer whose commit's answer was lost finds its tasks by it
    claimed_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at  timestamptz,
    renewed_at  timestamptz NOT NULL DEFAULT clock_timestamp(),   -- its worker was heard last
    until       timestamptz NOT NULL,
    sweep_at    timestamptz NOT NULL,     -- a sweep looks at it then: not after until, and earlier when it was renewed, so that a renewal changes no index
    budgets     int[],                    -- that bound the claim; null = none. Of each it reserved
    reserved    jsonb,                    -- by dimension, in millionths: the estimate, less what was reported as used
    used        jsonb,                    -- dimension to millionths, as reported so far
    heard_at    timestamptz,              -- the agent itself has said something last; null = never
    progress    jsonb,                    -- what it said of its progress last, and when; null = nothing
    progress_at timestamptz,
    progress_n  int NOT NULL DEFAULT 0,   -- how often it did
    word        jsonb,                    -- what the agent said of its own end last; null = nothing
    asking      boolean NOT NULL DEFAULT false,   -- the agent waits for an answer: the task has an open question that this attempt has asked
    paused      boolean NOT NULL DEFAULT false,   -- the agent is to stand still, and
    paused_at   timestamptz,                      -- it does since then; null = it does not, as far as is known
    stood       interval NOT NULL DEFAULT '0',    -- for how long it did before, each time until it was to go on
    forgot      boolean NOT NULL DEFAULT false,   -- this database was restored from a backup with this row in it: what was done to the attempt since may not be known here
    CONSTRAINT lease_is_sound CHECK (attempt >= 1 AND sweep_at <= until AND type IN ('initial', 'retry', 'reclaim', 'rework', 'replay', 'resume'))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX leases_sweep ON leases (sweep_at);

-- How a task stands that an attempt holds.
CREATE FUNCTION lease_state(l leases) RETURNS task_state LANGUAGE sql STABLE PARALLEL SAFE AS
$$ SELECT CASE WHEN l.started_at IS NULL THEN task_state 'claimed' WHEN l.paused_at IS NOT NULL THEN task_state 'paused' WHEN l.asking THEN task_state 'awaiting_input' ELSE task_state 'running' END $$;

-- Every task as it stands now: its row, and what its lease says of it.
CREATE VIEW standing WITH (security_invoker = true) AS
    SELECT t.id, t.seq, t.workspace, t.class, t.lane, t.estimate, t.key, t.title, t.phase, t.priority, t.conn, t.command, t.command_digest, t.idempotency_key, t.unmet, t.on_failed_dep,
        t.not_before, t.expires_at, t.retries, t.max_retries, t.backoff, t.last_error, t.reclaims, t.replays, t.created_by, t.created_at, t.ended_at,
        CASE WHEN l.task IS NULL THEN t.state ELSE lease_state(l) END AS state,
        coalesce(l.reason, t.reason) AS reason, coalesce(l.attempt, t.attempt) AS attempt, coalesce(l.epoch, t.epoch) AS epoch,
        coalesce(t.started_at, l.started_at) AS started_at, greatest(t.updated_at, l.claimed_at, l.started_at, l.paused_at) AS updated_at, l.owner, l.claimed_at, l.until
    FROM tasks t LEFT JOIN leases l ON l.task = t.id;

-- Attempts that have ended, and did not end their task: the one that did is in the
-- task's row, until somebody queues the task again. Written once, never changed.
CREATE TABLE ended_attempts (
    task        uuid NOT NULL,
    number      int NOT NULL,
    workspace   text NOT NULL,
    epoch       bigint NOT NULL,
    type        text NOT NULL,
    owner       text NOT NULL,
    claim       uuid NOT NULL,
    claimed_at  timestamptz NOT NULL,
    started_at  timestamptz,
    ended_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    outcome     text NOT NULL,
    exit        jsonb,                    -- how the agent's process ended
    PRIMARY KEY (task, number),
    CONSTRAINT outcome_is_known CHECK (outcome IN ('succeeded', 'failed', 'timed_out', 'killed', 'cancelled', 'interrupted', 'unavailable', 'superseded', 'released', 'blocked', 'parked'))
);

-- Tasks that have ended: lists and pruning find them here. Indexes over the ends of
-- tasks would make every end write all indexes of tasks.
CREATE TABLE ended (
    task         uuid NOT NULL,
    workspace    text NOT NULL,
    lane         text NOT NULL,
    phase        text NOT NULL DEFAULT '',
    state        text NOT NULL,           -- text, which policies let an index find
    at           timestamptz NOT NULL DEFAULT clock_timestamp(),
    archived_at  timestamptz,             -- lists leave it out since then; null = they have it
    archived     boolean NOT NULL GENERATED ALWAYS AS (archived_at IS NOT NULL) STORED,   -- so that a list walks those that it shows alone
    PRIMARY KEY (workspace, state, archived, task)
);
CREATE INDEX ended_age ON ended (at);
CREATE INDEX ended_lane ON ended (workspace, lane, state, archived, task);
CREATE INDEX ended_phase ON ended (workspace, phase, state, archived, task) WHERE phase <> '';

-- What agents have said of their progress: the newest of each attempt. What an attempt that goes on said last is
-- in its lease.
CREATE TABLE progress (
    task       uuid NOT NULL,
    attempt    int NOT NULL,
    n          int NOT NULL,              -- from 1
    workspace  text NOT NULL,
    said       jsonb NOT NULL,
    at         timestamptz NOT NULL,
    PRIMARY KEY (task, attempt, n)
);

-- What agents keep for their next attempts: the data is in a file of the data directory, by its digest.
CREATE TABLE task_checkpoints (
    task       uuid PRIMARY KEY,
    workspace  text NOT NULL,
    attempt    int NOT NULL,              -- that kept it
    digest     text NOT NULL,             -- SHA-256, hex; '' = no data
    size       bigint NOT NULL,
    session    text NOT NULL,             -- the id of a session of the agent's runtime; '' = none
    at         timestamptz NOT NULL
);

-- When attempts that run here overrun what was estimated of them. A row goes with its attempt.
CREATE TABLE overruns (
    task       uuid PRIMARY KEY,
    workspace  text NOT NULL,
    attempt    int NOT NULL,
    due        timestamptz,               -- that is warned of, or it is ended, then; null = it was ended
    patience   interval NOT NULL,         -- how long from the warning it may tell no progress
    warned_at  timestamptz,
    over_at    timestamptz                -- it is to be ended, from then on
);
CREATE INDEX overruns_due ON overruns (due);

-- The turn of a question that comes while so many others are open. Lists begin with the highest: no spoke takes the place
-- of others, and no page has to count.
CREATE FUNCTION turn_of(open bigint) RETURNS int LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT (-open / 200)::int $$;

-- What agents that run here have asked people. A question is of its task: a later attempt that asks it again gets the
-- answer. One that is open when its task ends, or when an attempt fails, is withdrawn with that.
CREATE TABLE questions (
    id           uuid PRIMARY KEY,         -- follows from task and key
    workspace    text NOT NULL,
    task         uuid NOT NULL,
    attempt      int NOT NULL,             -- that asked it last
    key          text NOT NULL,            -- the agent's own
    question     text NOT NULL,
    options      text[] NOT NULL,          -- none = any text is an answer
    fallback     text NOT NULL,            -- the answer where nobody gives one in time; '' = none
    data         text NOT NULL,
    asked_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    turn         int NOT NULL DEFAULT 0,   -- turn_of those that were open when it came, 2000 at most
    deadline     timestamptz NOT NULL,
    outcome      text,                     -- null = nobody has answered yet
    answer       text NOT NULL DEFAULT '',
    reason       text NOT NULL DEFAULT '',
    answered_by  text NOT NULL DEFAULT '',
    answered_at  timestamptz,
    told         int NOT NULL DEFAULT 0,   -- reports on its being asked, which are bounded: each attempt that asks it again sends one
    UNIQUE (task, key),
    CONSTRAINT outcome_is_known CHECK (outcome IN ('answered', 'defaulted', 'unanswered', 'withdrawn') AND (outcome IS NULL) = (answered_at IS NULL))
);
CREATE INDEX questions_open ON questions (deadline) WHERE outcome IS NULL;
CREATE INDEX questions_listed ON questions (turn, asked_at, id) WHERE outcome IS NULL;
CREATE INDEX questions_short ON questions (substring(uuid_send(id) FROM 12));

-- Every attempt, for people.
CREATE VIEW attempts WITH (security_invoker = true) AS
    SELECT task, number, workspace, epoch, type, owner, claim, claimed_at, started_at, ended_at, outcome, exit FROM ended_attempts
    UNION ALL
    SELECT id, attempt, workspace, epoch, last_type, last_owner, last_claim, last_claimed_at, last_started_at, ended_at, last_outcome, last_exit FROM tasks WHERE last_outcome IS NOT NULL
    UNION ALL
    SELECT task, attempt, workspace, epoch, type, owner, claim, claimed_at, started_at, NULL, NULL, NULL FROM leases;

-- How many tasks stand ready, due or parked, and how many have ended how: counting
-- millions would take seconds. counts has the sums; tallies has what transactions
-- have added since, until a sweep adds it to the sums. Rows of tallies are never
-- changed, so that nobody waits for one. What is leased is counted where it stands.
CREATE TABLE counts (
    workspace  text NOT NULL,
    lane       text NOT NULL,
    what       text NOT NULL,             -- 'ready', 'due', why it is parked, or how it ended
    n          bigint NOT NULL,
    PRIMARY KEY (workspace, lane, what)
) WITH (fillfactor = 50);
CREATE INDEX counts_ready ON counts (workspace, lane) WHERE what = 'ready';   -- of all workspaces, for the sweep

CREATE TABLE tallies (
    workspace  text NOT NULL,
    lane       text NOT NULL,
    what       text NOT NULL,
    n          bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX tallies_workspace ON tallies (workspace);

CREATE VIEW counted WITH (security_invoker = true) AS
    SELECT workspace, lane, what, n FROM counts UNION ALL SELECT workspace, lane, what, n FROM tallies;

----------------------------------------------- who claims, and what stops it ---

-- Secrets that sign claim grants, inside this instance only. A key verifies for
-- longer than it signs, so that grants outlive the change of keys.
CREATE TABLE grant_keys (
    kid             text PRIMARY KEY,
    secret          bytea NOT NULL,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    signs_until     timestamptz NOT NULL,
    verifies_until  timestamptz NOT NULL,
    CONSTRAINT secret_has_32_bytes CHECK (octet_length(secret) = 32),
    CONSTRAINT verifies_while_it_signs CHECK (verifies_until >= signs_until)
);

-- Who claims here, with what: so that a task can say who could take it. Noted
-- once a minute, not with every claim.
CREATE TABLE claimers (
    workspace     text NOT NULL,
    owner         text NOT NULL,
    kind          text NOT NULL,        -- of tasks, as in classes
    capabilities  text[] NOT NULL,
    lanes         text[],               -- null = all
    seen          timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (workspace, owner, kind)
) WITH (fillfactor = 50);

-- Claimers that wait just now. While there is none, nobody is notified: a
-- notification makes commits queue up. Unlogged: after a crash nobody waits.
CREATE UNLOGGED TABLE listeners (
    id     uuid PRIMARY KEY,
    until  timestamptz NOT NULL
);

-- The lanes that were set. One that has no row is active and weighs 1.
CREATE TABLE lanes (
    workspace  text NOT NULL,
    name       text NOT NULL,
    state      text NOT NULL DEFAULT 'active',   -- 'draining' = what is there is still claimed, nothing new is taken
    weight     int NOT NULL DEFAULT 1,           -- its share of the claims, beside the other lanes'
    reason     text NOT NULL DEFAULT '',         -- why, by whom and since when it is in this state
    actor      text NOT NULL DEFAULT '',
    since      timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (workspace, name),
    CONSTRAINT name_is_a_name CHECK (name ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    CONSTRAINT state_is_known CHECK (state IN ('active', 'paused', 'draining', 'disabled')),
    CONSTRAINT weight_is_in_range CHECK (weight BETWEEN 1 AND 1000)
);

-- Nothing in the scope is claimed while a freeze is not lifted.
CREATE TABLE freezes (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    workspace  text NOT NULL,                    -- '' = the whole instance
    scope      text NOT NULL,
    target     text NOT NULL DEFAULT '',         -- which lane, connection or account
    reason     text NOT NULL,
    actor      text NOT NULL,
    since      timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (workspace, scope, target),
    CONSTRAINT scope_is_known CHECK (scope IN ('instance', 'workspace', 'lane', 'connection', 'account')),
    CONSTRAINT instance_has_no_workspace CHECK ((scope = 'instance') = (workspace = ''))
);

-- Accounts that have met a limit of their provider's. Before a time nothing of theirs is claimed.
CREATE TABLE account_limits (
    workspace  text NOT NULL,
    account    text NOT NULL,
    until      timestamptz NOT NULL,
    task       uuid NOT NULL,                    -- the last one that met it
    since      timestamptz NOT NULL DEFAULT now(), -- when the one met it that has to wait for longest
    PRIMARY KEY (workspace, account)
);

-- The number of the last change of the freezes: peers that are commanded take no older one. It grows with the
-- time, so that it is above those of other lives of this database, too.
CREATE TABLE freeze_numbers (
    one   boolean PRIMARY KEY DEFAULT true CHECK (one),
    last  bigint NOT NULL DEFAULT 0
);
INSERT INTO freeze_numbers DEFAULT VALUES;
-- +goose StatementBegin
CREATE FUNCTION number_freezes() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public AS $$
BEGIN
    UPDATE freeze_numbers SET last = greatest(last + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER freezes_numbered AFTER INSERT OR UPDATE OR DELETE ON freezes FOR EACH ROW EXECUTE FUNCTION number_freezes();

-- What may be spent. Amounts are millionths of the dimension's unit. A claim
-- reserves, a report settles, the end of the attempt releases.
CREATE TABLE budgets (
    id             int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    workspace      text NOT NULL,                    -- '' = the whole instance
    name           text NOT NULL,
    scope          text NOT NULL,
    target         text NOT NULL DEFAULT '',         -- which connection, lane, agent, task or account
    dimension      text NOT NULL,                    -- what is counted, as in usd
    hard           bigint NOT NULL,                  -- nothing is claimed that would pass this
    soft           bigint,                           -- passing this is noted in the audit
    on_hard        text NOT NULL DEFAULT 'queue',    -- what happens to tasks when it is spent
    downgrade_to   text NOT NULL DEFAULT '',         -- lane
    rolling        interval,                         -- counts what was charged in the last so long; null = all
    resets_at      timestamptz,                      -- counts from zero again then, and
    every          interval,                         -- so often after that; null = never
    soft_since     timestamptz,                      -- when soft was passed; null = not yet
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (workspace, name),
    CONSTRAINT name_is_a_name CHECK (name ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    CONSTRAINT scope_is_known CHECK (scope IN ('instance', 'workspace', 'connection', 'lane', 'agent', 'task', 'account')),
    CONSTRAINT instance_has_no_workspace CHECK ((scope = 'instance') = (workspace = '')),
    CONSTRAINT dimension_is_a_name CHECK (dimension ~ '^[a-z][a-z0-9_]{0,30}$'),
    CONSTRAINT limits_are_no_debt CHECK (hard >= 0 AND (soft IS NULL OR soft >= 0)),
    CONSTRAINT on_hard_is_known CHECK (on_hard IN ('queue', 'downgrade', 'refuse', 'cancel')),
    CONSTRAINT downgrade_names_a_lane CHECK ((on_hard = 'downgrade') = (downgrade_to <> '')),
    CONSTRAINT intervals_are_positive CHECK ((rolling IS NULL OR rolling > interval '0') AND (every IS NULL OR every > interval '0')),
    CONSTRAINT rolls_or_resets CHECK (rolling IS NULL OR resets_at IS NULL),
    CONSTRAINT repeats_a_reset CHECK (every IS NULL OR resets_at IS NOT NULL)
);

-- A budget's sums, as a sharded counter: whoever changes them does so in the shard of
-- its connection, so that nobody queues up for one row. Only the sums over all shards
-- mean something. A shard may hold escrow: room that its claimers may reserve without
-- asking the other shards. Whoever puts room into escrow, takes it back or leaves less
-- room than there was holds the budget's own row. See docs/decisions/0006.
CREATE TABLE budget_shards (
    budget     int NOT NULL,
    shard      int NOT NULL,
    workspace  text NOT NULL,
    escrow     bigint NOT NULL DEFAULT 0,
    used       bigint NOT NULL DEFAULT 0,
    reserved   bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (budget, shard)
) WITH (fillfactor = 50);

-- The budgets with their sums, for people and for whatever is not a claim.
CREATE VIEW funds WITH (security_invoker = true) AS
    SELECT b.*, s.used, s.reserved FROM budgets b, LATERAL (
        SELECT coalesce(sum(used), 0)::bigint AS used, coalesce(sum(reserved), 0)::bigint AS reserved FROM budget_shards WHERE budget = b.id
    ) AS s;

-- The shard of this connection.
CREATE FUNCTION budget_shard() RETURNS int LANGUAGE sql STABLE AS $$ SELECT pg_backend_pid() % 16 $$;

-- Takes back what a budget's shards hold in escrow: the room is about to shrink. Until
-- the caller's transaction ends nobody reserves from it.
-- +goose StatementBegin
CREATE FUNCTION recall_escrow(b int) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM budgets WHERE id = b FOR NO KEY UPDATE;
    UPDATE budget_shards SET escrow = 0 WHERE (budget, shard) IN (
        SELECT budget, shard FROM budget_shards WHERE budget = b AND escrow <> 0 ORDER BY shard FOR UPDATE);
END $$;
-- +goose StatementEnd

-- What was charged when, of budgets with a rolling window. No foreign key: an end
-- that holds the shards of a budget would wait for the budget, which comes before them.
CREATE TABLE charges (
    budget     int NOT NULL,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    workspace  text NOT NULL,
    amount     bigint NOT NULL            -- millionths
);
CREATE INDEX charges_at ON charges (budget, at);

-- Usage that workers reported.
CREATE TABLE usage_reports (
    workspace  text NOT NULL,
    task       uuid NOT NULL,
    attempt    int NOT NULL,
    key        text NOT NULL,             -- the worker's own: makes a report count once
    usage      jsonb NOT NULL,            -- dimension to millionths
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (task, attempt, key),
    CONSTRAINT key_has_a_fit_length CHECK (octet_length(key) BETWEEN 1 AND 200)
);

-- How many claims at once, and how many per window.
CREATE TABLE quotas (
    id          int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    workspace   text NOT NULL,                    -- '' = the whole instance
    name        text NOT NULL,
    scope       text NOT NULL,
    target      text NOT NULL DEFAULT '',         -- which connection, lane, agent or account
    concurrent  int,                              -- null = any number
    per_window  int,                              -- null = any number; else within the last
    win         interval,                         -- so long
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (workspace, name),
    CONSTRAINT name_is_a_name CHECK (name ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    CONSTRAINT scope_is_known CHECK (scope IN ('instance', 'workspace', 'connection', 'lane', 'agent', 'account')),
    CONSTRAINT instance_has_no_workspace CHECK ((scope = 'instance') = (workspace = '')),
    CONSTRAINT limits_are_no_debt CHECK ((concurrent IS NULL OR concurrent >= 0) AND (per_window IS NULL OR per_window >= 0)),
    CONSTRAINT limits_something CHECK (concurrent IS NOT NULL OR per_window IS NOT NULL),
    CONSTRAINT window_has_a_length CHECK ((per_window IS NULL) = (win IS NULL) AND (win IS NULL OR win > interval '0'))
);

-- Claims that count against a quota. Whether one is still active is asked of
-- leases, so that a count cannot leak.
CREATE TABLE quota_uses (
    quota      int NOT NULL REFERENCES quotas ON DELETE CASCADE,
    task       uuid NOT NULL,
    attempt    int NOT NULL,
    workspace  text NOT NULL,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (quota, task, attempt)
);
CREATE INDEX quota_uses_at ON quota_uses (quota, at);

-------------------------------------------------------- agents and mirrors ---

-- Agents that ran here or were asked for from here.
CREATE TABLE agents (
    id          uuid PRIMARY KEY,           -- the task's
    conn        uuid NOT NULL,              -- who asked for it
    name        text NOT NULL DEFAULT '',
    runtime     text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    over        boolean NOT NULL DEFAULT false   -- the task has ended
) WITH (fillfactor = 70);
CREATE INDEX agents_conn ON agents (conn, id);
CREATE INDEX agents_open ON agents (conn, id) WHERE NOT over;

-- The processes of agents that run here, one per attempt.
CREATE TABLE sessions (
    task        uuid NOT NULL REFERENCES agents ON DELETE CASCADE,
    attempt     int NOT NULL,
    pid         int NOT NULL,               -- of the agent, and
    boot_id     text NOT NULL,              -- the boot of the machine that the pids belong to
    shim_pid    int NOT NULL,               -- of the process between spoke and agent, 0 = none; with
    shim_start  bigint NOT NULL,            -- its start in clock ticks after the boot nobody else is taken for it
    cgroup      text NOT NULL,              -- path of the agent's cgroup; '' = none
    state       text NOT NULL,
    started_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    ended_at    timestamptz,
    PRIMARY KEY (task, attempt),
    CONSTRAINT state_is_known CHECK (state IN ('registered', 'spawning', 'online', 'draining', 'offline', 'retired', 'failed'))
) WITH (fillfactor = 70);

-- Output of attempts here that the hub that asked for them does not have yet. The
-- bytes are in the attempt's files. A row goes when the hub has all of it.
CREATE TABLE outputs (
    task            uuid NOT NULL,
    attempt         int NOT NULL,
    conn            uuid NOT NULL,
    command         uuid NOT NULL,              -- the spawn message, and
    command_digest  bytea NOT NULL,             -- SHA-256 of its body
    epoch           bigint NOT NULL,            -- of the attempt's fence
    stdout          bigint NOT NULL DEFAULT 0,  -- bytes that the hub has on disk, as it says
    stderr          bigint NOT NULL DEFAULT 0,
    stdout_ended    boolean NOT NULL DEFAULT false,   -- it has the end of the stream, too
    stderr_ended    boolean NOT NULL DEFAULT false,
    PRIMARY KEY (task, attempt)
) WITH (fillfactor = 70);

-- The hub's read model of tasks on spokes: what the spoke's signed words say.
CREATE TABLE mirrors (
    task             uuid PRIMARY KEY,
    conn             uuid NOT NULL,
    title            text NOT NULL DEFAULT '',
    priority         int NOT NULL DEFAULT 0,
    state            task_state NOT NULL DEFAULT 'queued',
    reason           text NOT NULL DEFAULT '',
    refusal          jsonb,                         -- why the spoke took no work
    refusals         jsonb NOT NULL DEFAULT '[]',   -- every one, of earlier spokes too: who, when, why
    anywhere         boolean NOT NULL DEFAULT false,   -- the hub chose the spoke, and chooses another one when that refuses
    attempt          int NOT NULL DEFAULT 0,
    last_seq         bigint NOT NULL DEFAULT 0,     -- of the newest report that was applied
    command          uuid NOT NULL UNIQUE,          -- the spawn message, and
    command_digest   bytea NOT NULL,                -- SHA-256 of its body
    idempotency_key  text CONSTRAINT mirrors_idempotency UNIQUE,   -- of the request that ordered it, and
    request_digest   bytea NOT NULL,                -- what it asked for: the same key with another request is refused
    created_by       text NOT NULL,
    spec             jsonb NOT NULL,
    labels           jsonb,                         -- the hub's own: no spoke is told; null = none
    schedule         text,                          -- the name of the schedule that ordered it; null = none did
    result           jsonb,
    delivered        jsonb,                         -- the last result that was for review: its bundle stays to be fetched where the end brings none
    final_digest     bytea,                         -- of what the result or refusal said that ended it, or that was the first to come after its end
    attempts         jsonb NOT NULL DEFAULT '[]',   -- ends of those that another one follows, as the spoke tells them; about 100
    policy           text NOT NULL DEFAULT '',      -- version of the spoke's policy that decided last, as it says
    isolation        text NOT NULL DEFAULT '',      -- what the last agent was confined by, as it says
    kill             jsonb,                         -- those that were ordered, the first 100: which, why, by whom, when, and that its spoke refused it
    pause            jsonb,                         -- the last word whether it is to stand still: which, why, by whom, when, what its spoke said to it
    review           jsonb,                         -- the last one: of which attempt, what came of it, why, by whom, when, what its spoke said to it
    pause_expires_at timestamptz,                   -- the spoke refuses it after this; null = it has answered, or never will
    kill_expires_at  timestamptz,                   -- the spoke refuses it after this; null = none is ordered that ends it in time
    expires_at       timestamptz NOT NULL,          -- of the order
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    accepted_at      timestamptz,                   -- null = the spoke has not accepted it
    started_at       timestamptz,
    ended_at         timestamptz,
    accepted_said    timestamptz,                   -- when that was by the spoke's clock, as it says: shown to people,
    started_said     timestamptz,                   -- and nothing is decided by it
    ended_said       timestamptz,
    archived_at      timestamptz,                   -- lists leave it out since then; null = they have it
    updated_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- A column, so that one order of an index has either those that lists have or the others.
    archived         boolean NOT NULL GENERATED ALWAYS AS (archived_at IS NOT NULL) STORED,
    CONSTRAINT ended_is_terminal CHECK (is_terminal(state) = (ended_at IS NOT NULL)),
    CONSTRAINT only_what_has_ended_is_archived CHECK (archived_at IS NULL OR ended_at IS NOT NULL)
) WITH (fillfactor = 60);
CREATE INDEX mirrors_ended ON mirrors (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX mirrors_listed ON mirrors (archived, task);
CREATE INDEX mirrors_conn ON mirrors (conn, archived, task);
CREATE INDEX mirrors_short ON mirrors (substring(uuid_send(task) FROM 12));   -- the 40 bits of the short id
CREATE INDEX mirrors_retries ON mirrors ((spec->>'retry_of')) WHERE spec->>'retry_of' IS NOT NULL;
CREATE INDEX mirrors_title ON mirrors (title, task) WHERE title <> '';
-- Entries go into it at once: a list of pending ones would be read whole by every search.
CREATE INDEX mirrors_labels ON mirrors USING gin (labels jsonb_path_ops) WITH (fastupdate = off) WHERE labels IS NOT NULL;
CREATE INDEX mirrors_open_newest ON mirrors (task) WHERE ended_at IS NULL;
CREATE INDEX mirrors_open_conn ON mirrors (conn, task) WHERE ended_at IS NULL;
-- What a spoke has to do that no heartbeat counts yet, and what it never answered.
CREATE INDEX mirrors_open ON mirrors (conn, accepted_at, expires_at) WHERE ended_at IS NULL;
CREATE INDEX mirrors_paused ON mirrors (pause_expires_at) WHERE pause_expires_at IS NOT NULL;
CREATE INDEX mirrors_killed ON mirrors (kill_expires_at) WHERE ended_at IS NULL AND kill_expires_at IS NOT NULL;

-- Questions of agents on spokes, as these say, and what was answered from here. They go with their mirror.
CREATE TABLE inquiries (
    conn         uuid NOT NULL,
    id           uuid NOT NULL,
    task         uuid NOT NULL REFERENCES mirrors ON DELETE CASCADE,
    attempt      int NOT NULL,             -- 0 = only what became of it is known
    seq          bigint NOT NULL,          -- of the newest report on it
    question     text NOT NULL,
    options      text[] NOT NULL,
    fallback     text NOT NULL,
    data         text NOT NULL,
    received_at  timestamptz NOT NULL DEFAULT clock_timestamp(),   -- lists are in its order: the spoke's clock may say anything
    turn         int NOT NULL DEFAULT 0,   -- turn_of those of its connection that were open when it came, 2000 at most
    asked_at     timestamptz NOT NULL,     -- by the spoke's clock, as deadline and answered_at
    deadline     timestamptz NOT NULL,
    outcome      text,                     -- as in questions
    answer       text NOT NULL DEFAULT '',
    reason       text NOT NULL DEFAULT '',
    answered_by  text NOT NULL DEFAULT '',
    answered_at  timestamptz,
    sent         jsonb,                    -- the answer that this hub sent last: what, by whom, when; null = none
    resent       int NOT NULL DEFAULT 0,   -- how often it was sent once more since somebody gave it
    command      uuid,                     -- that message, while it is on its way, and where it was taken or its spoke did not know the question
    PRIMARY KEY (conn, id),
    CONSTRAINT answered_is_when CHECK ((outcome IS NULL) = (answered_at IS NULL))
);
CREATE INDEX inquiries_open ON inquiries (conn, id) WHERE outcome IS NULL;
CREATE INDEX inquiries_listed ON inquiries (turn, received_at, id) WHERE outcome IS NULL;
CREATE INDEX inquiries_task ON inquiries (task);
CREATE INDEX inquiries_short ON inquiries (substring(uuid_send(id) FROM 12));
CREATE INDEX inquiries_command ON inquiries (command) WHERE command IS NOT NULL;

-- What the feed was told last of an agent by the heartbeats of its spoke: its progress, and that it overruns.
CREATE TABLE agent_news (
    task      uuid NOT NULL REFERENCES mirrors ON DELETE CASCADE,
    kind      text NOT NULL CONSTRAINT news_kind_is_known CHECK (kind IN ('progress', 'overrun')),
    conn      uuid NOT NULL,
    attempt   int NOT NULL,
    said_at   bigint NOT NULL,   -- when the agent said it, ms since 1970 by its spoke's clock; 0 = that is not told
    progress  jsonb,             -- null = it is about none
    told_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (task, kind)
) WITH (fillfactor = 50);

-- The environment of orders that the hub may give to another spoke, until one has taken it:
-- encrypted to this hub's own sealing key.
CREATE TABLE order_values (
    task  uuid PRIMARY KEY REFERENCES mirrors ON DELETE CASCADE,
    box   bytea NOT NULL
);

-- What is ordered again and again. A schedule is never executed itself: each time it is due, its template becomes an
-- order of its own. When that is, the program works out, and the row that it holds meanwhile says.
CREATE TABLE schedules (
    id           uuid PRIMARY KEY,
    name         text NOT NULL CONSTRAINT schedules_name UNIQUE,
    cron         text NOT NULL,
    zone         text NOT NULL,              -- by whose clock
    overlap      text NOT NULL,              -- what becomes of it while its last agent has not ended
    state        text NOT NULL DEFAULT 'active',
    why          text NOT NULL DEFAULT '',   -- it is paused
    restored     boolean NOT NULL DEFAULT false, -- by a restore, and by nobody
    paused_by    text NOT NULL DEFAULT '',   -- who has paused it: self = this instance
    paused_at    timestamptz,
    template     jsonb NOT NULL,             -- the order, without values
    box          bytea,                      -- its values, encrypted to this hub's own sealing key; null = it has none
    next_due_at  timestamptz,                -- null = it is paused
    last_fired_at timestamptz,
    last_task    uuid,                       -- the last that it has ordered
    outcome       text NOT NULL DEFAULT '',   -- what became of it last; empty = it was not due yet
    outcome_code  text NOT NULL DEFAULT '',   -- why nothing was ordered
    outcome_why   text NOT NULL DEFAULT '',
    outcome_since timestamptz,                -- each time since then has had the same outcome and code
    created_by   text NOT NULL,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT name_is_a_name CHECK (name ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    CONSTRAINT overlap_is_known CHECK (overlap IN ('skip', 'queue', 'replace')),
    CONSTRAINT active_is_due CHECK (CASE state WHEN 'active' THEN next_due_at IS NOT NULL WHEN 'paused' THEN next_due_at IS NULL ELSE false END),
    CONSTRAINT a_pause_is_somebodys CHECK ((state = 'paused') = (paused_by <> '') AND (state = 'paused') = (paused_at IS NOT NULL))
);
CREATE INDEX schedules_due ON schedules (next_due_at) WHERE next_due_at IS NOT NULL;

-- What became of each time that a schedule was due, or that somebody had it run.
CREATE TABLE schedule_fires (
    seq       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    schedule  uuid NOT NULL REFERENCES schedules ON DELETE CASCADE,
    due_at    timestamptz,                   -- null = somebody had it run
    at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    outcome   text NOT NULL,
    missed    int NOT NULL DEFAULT 0,        -- how many more were due by then: they are this one
    task      uuid,                          -- what was ordered
    code      text NOT NULL DEFAULT '',      -- why nothing was
    why       text NOT NULL DEFAULT '',
    actor     text NOT NULL,
    CONSTRAINT a_time_is_due_once UNIQUE (schedule, due_at),
    CONSTRAINT outcome_is_known CHECK (outcome IN ('ordered', 'skipped', 'refused'))
);
CREATE INDEX schedule_fires_newest ON schedule_fires (schedule, seq);
CREATE INDEX schedule_fires_at ON schedule_fires (at);

-- Output of agents on spokes, as far as it has arrived. Its bytes are in segments:
-- files that only grow, below the hub's data directory. One log holds all streams
-- of all attempts of a task, in the order of arrival; a position in it counts the
-- bytes since its beginning, records with their heads.
CREATE TABLE logs (
    task  uuid PRIMARY KEY REFERENCES mirrors ON DELETE CASCADE,
    conn  uuid NOT NULL,
    tail  bigint NOT NULL DEFAULT 0,   -- position behind the last record; what files hold behind it is not valid
    at    timestamptz NOT NULL DEFAULT clock_timestamp()   -- of the last record
);

CREATE TABLE log_segments (
    task   uuid NOT NULL REFERENCES logs ON DELETE CASCADE,
    base   bigint NOT NULL,            -- position of its first record, and the name of its file
    conn   uuid NOT NULL,
    bytes  bigint NOT NULL,
    at     timestamptz NOT NULL DEFAULT clock_timestamp(),   -- of its last record
    PRIMARY KEY (task, base)
) WITH (fillfactor = 70);
CREATE INDEX log_segments_conn ON log_segments (conn, at, task, base);

-- How much is kept of the output of a connection's agents, a segment as the block
-- that its file takes at least. Rows are only added, so that nobody waits for one,
-- and their sum alone means something; who looks for old segments makes one of them.
CREATE TABLE log_sums (
    conn   uuid NOT NULL,
    bytes  bigint NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX log_sums_conn ON log_sums (conn);

-- +goose StatementBegin
CREATE FUNCTION sum_segments() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        INSERT INTO log_sums SELECT conn, sum(greatest(bytes, 4096)) FROM came GROUP BY 1;
    ELSIF TG_OP = 'DELETE' THEN
        INSERT INTO log_sums SELECT conn, -sum(greatest(bytes, 4096)) FROM went GROUP BY 1;
    ELSE
        INSERT INTO log_sums SELECT conn, sum(n) FROM (
            SELECT conn, greatest(bytes, 4096) AS n FROM came UNION ALL SELECT conn, -greatest(bytes, 4096) FROM went) AS x GROUP BY 1 HAVING sum(n) <> 0;
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER log_segments_came AFTER INSERT ON log_segments REFERENCING NEW TABLE AS came FOR EACH STATEMENT EXECUTE FUNCTION sum_segments();
CREATE TRIGGER log_segments_grew AFTER UPDATE ON log_segments REFERENCING OLD TABLE AS went NEW TABLE AS came FOR EACH STATEMENT EXECUTE FUNCTION sum_segments();
CREATE TRIGGER log_segments_went AFTER DELETE ON log_segments REFERENCING OLD TABLE AS went FOR EACH STATEMENT EXECUTE FUNCTION sum_segments();

CREATE TABLE log_streams (
    task     uuid NOT NULL REFERENCES logs ON DELETE CASCADE,
    attempt  int NOT NULL,
    stream   text NOT NULL,
    through  bigint NOT NULL,              -- bytes of the stream that have arrived
    dropped  bigint NOT NULL DEFAULT 0,    -- of these, from the beginning: went with old segments
    ended    jsonb,                        -- how its spoke says that it ended; null = more may come
    PRIMARY KEY (task, attempt, stream),
    CONSTRAINT stream_is_known CHECK (stream IN ('stdout', 'stderr'))
) WITH (fillfactor = 70);

-------------------------------------------------------------------- audit ---

-- Everything that was decided, refused or changed. Append only. One row tells of
-- one act, which may concern many tasks: object is then the claim or the creation
-- that they share, and tasks lists them.
CREATE TABLE audit (
    seq        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at         timestamptz NOT NULL DEFAULT clock_timestamp(),
    workspace  text NOT NULL DEFAULT '',   -- '' = of no workspace
    actor      text NOT NULL,
    action     text NOT NULL,
    object     text NOT NULL DEFAULT '',
    tasks      uuid[],
    code       text NOT NULL DEFAULT '',   -- of the refusal, '' = it was done
    why        text NOT NULL DEFAULT '',
    conn       uuid,
    message    uuid,                       -- the message that asked for it
    -- Orders a workspace, the newest first. The primary key has no such order: a planner that knows no small workspace would look
    -- for it among all others. A column, as row-level security lets no expression of seq use an index.
    back       bigint NOT NULL GENERATED ALWAYS AS (-seq) STORED
);
ALTER TABLE audit ALTER COLUMN tasks SET STORAGE EXTERNAL;   -- ids do not compress, and trying costs more than writing them
CREATE INDEX audit_object ON audit (object, workspace, seq);
CREATE INDEX audit_workspace ON audit (workspace, back);
-- The rows that first name a task, by the last ten digits of its id, which are the short id: the audit outlives the task,
-- and of an order that was refused there is no other row.
CREATE INDEX audit_short ON audit (right(object, 10) COLLATE "C") WHERE action IN ('command.refused', 'task.ordered', 'task.queued');

-- The tree over these rows (RFC 6962). A row becomes a leaf after its commit, as a lower seq may become visible after a higher one;
-- who writes an audit row writes nothing for it. Leaves and hashes are only added, and stay when retention removes their
-- rows. See docs/decisions/0034.
CREATE TABLE audit_tree (
    singleton  boolean PRIMARY KEY DEFAULT true CONSTRAINT there_is_one_tree CHECK (singleton),
    size       bigint NOT NULL DEFAULT 0,   -- leaves
    seq        bigint NOT NULL DEFAULT 0,   -- up to here every number was looked at
    era        bigint NOT NULL DEFAULT 0    -- 0, or when the database was restored last, in µs since 1970
) WITH (fillfactor = 10);
INSERT INTO audit_tree DEFAULT VALUES;
CREATE TABLE audit_leaves (
    leaf  bigint PRIMARY KEY,   -- the first is 0
    seq   bigint NOT NULL CONSTRAINT a_row_is_one_leaf UNIQUE
);
CREATE TABLE audit_hashes (
    place  bigint PRIMARY KEY,   -- that of golang.org/x/mod/sumdb/tlog: each subtree stands behind the leaf that completes it
    hash   bytea NOT NULL
);
-- Numbers that were not there when higher ones were looked at: of transactions that were rolled back, or that still run.
CREATE TABLE audit_gaps (
    first    bigint PRIMARY KEY,
    last     bigint NOT NULL,
    at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    running  xid8 NOT NULL DEFAULT pg_snapshot_xmax(pg_current_snapshot())   -- what has taken one of them began before
);
CREATE TABLE audit_checkpoints (
    era   bigint,
    size  bigint,
    note  bytea NOT NULL,   -- signed
    PRIMARY KEY (era, size)
);
-- The newest checkpoint that each peer has shown, of each era: what its audit must go on from.
CREATE TABLE peer_checkpoints (
    conn        uuid NOT NULL REFERENCES connections,
    era         bigint NOT NULL,
    size        bigint NOT NULL,
    note        bytea NOT NULL,
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    refused     bytea,                       -- the first note that did not go on from it: evidence
    why         text NOT NULL DEFAULT '',
    refused_at  timestamptz,
    PRIMARY KEY (conn, era)
);

------------------------------------------------------------------- events ---

-- What changed of agents on spokes, of connections and of their links, for whoever follows
-- it. A trigger writes each with the change. The one process that serves the instance numbers
-- what is committed, so that numbers have no gap and none appears below one that was read. See
-- docs/decisions/0029.
CREATE TABLE new_events (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,   -- of changes of one thing the later one has the higher
    at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    kind      text NOT NULL CONSTRAINT event_kind_is_known CHECK (kind IN ('task', 'progress', 'overrun', 'connection', 'link', 'started', 'restored')),
    task      uuid,
    conn      uuid,
    previous  text NOT NULL DEFAULT '',        -- state of the task
    state     text NOT NULL DEFAULT '',
    reason    text NOT NULL DEFAULT '',
    attempt   int NOT NULL DEFAULT 0,
    accepted  boolean NOT NULL DEFAULT false,  -- by its spoke
    progress  jsonb                            -- as the agent said it
);
CREATE TABLE events (
    seq       bigint PRIMARY KEY,
    at        timestamptz NOT NULL,
    kind      text NOT NULL,
    task      uuid,
    conn      uuid,
    previous  text NOT NULL,
    state     text NOT NULL,
    reason    text NOT NULL,
    attempt   int NOT NULL,
    accepted  boolean NOT NULL,
    progress  jsonb
);

-- Whoever enables a webhook holds it while these are looked for.
CREATE INDEX events_restored ON events (seq) WHERE kind = 'restored';

-- The number of the last event.
CREATE TABLE event_numbers (
    singleton  boolean PRIMARY KEY DEFAULT true CONSTRAINT there_is_one_feed CHECK (singleton),
    last       bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);
INSERT INTO event_numbers DEFAULT VALUES;

-- +goose StatementBegin
CREATE FUNCTION note_mirrors() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO new_events (kind, task, conn, state, reason, attempt, accepted)
    SELECT 'task', task, conn, state::text, reason, attempt, accepted_at IS NOT NULL FROM came;
    RETURN NULL;
END $$;
CREATE FUNCTION note_mirror() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO new_events (kind, task, conn, previous, state, reason, attempt, accepted)
    VALUES ('task', NEW.task, NEW.conn, OLD.state::text, NEW.state::text, NEW.reason, NEW.attempt, NEW.accepted_at IS NOT NULL);
    RETURN NULL;
END $$;
CREATE FUNCTION note_news() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO new_events (kind, task, conn, attempt, progress) VALUES (NEW.kind, NEW.task, NEW.conn, NEW.attempt, NEW.progress);
    RETURN NULL;
END $$;
CREATE FUNCTION note_connection() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO new_events (kind, conn, state, reason) VALUES ('connection', NEW.id, NEW.state, NEW.state_reason);
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER mirrors_came AFTER INSERT ON mirrors REFERENCING NEW TABLE AS came FOR EACH STATEMENT EXECUTE FUNCTION note_mirrors();
-- By row: what was cannot be joined with what is but row by row, which costs the square of a batch.
CREATE TRIGGER mirrors_changed AFTER UPDATE ON mirrors FOR EACH ROW
    WHEN ((NEW.state, NEW.reason, NEW.attempt, NEW.conn, NEW.accepted_at IS NULL) IS DISTINCT FROM (OLD.state, OLD.reason, OLD.attempt, OLD.conn, OLD.accepted_at IS NULL))
    EXECUTE FUNCTION note_mirror();
CREATE TRIGGER news_came AFTER INSERT OR UPDATE ON agent_news FOR EACH ROW EXECUTE FUNCTION note_news();
CREATE TRIGGER connections_came AFTER INSERT ON connections FOR EACH ROW EXECUTE FUNCTION note_connection();
CREATE TRIGGER connections_changed AFTER UPDATE ON connections FOR EACH ROW
    WHEN ((NEW.state, NEW.state_reason) IS DISTINCT FROM (OLD.state, OLD.state_reason)) EXECUTE FUNCTION note_connection();

-- Numbers up to most events that are committed, and says how many, and the last number of these.
CREATE FUNCTION number_events(most int, OUT numbered bigint, OUT upto bigint) LANGUAGE sql AS $$
    WITH held AS MATERIALIZED (
        SELECT last FROM event_numbers FOR UPDATE
    ), taken AS (
        DELETE FROM new_events WHERE id <= (SELECT max(id) FROM (SELECT id FROM new_events ORDER BY id LIMIT most) AS first) RETURNING *
    ), numbered AS (
        INSERT INTO events (seq, at, kind, task, conn, previous, state, reason, attempt, accepted, progress)
        SELECT last + row_number() OVER (ORDER BY id), at, kind, task, conn, previous, state, reason, attempt, accepted, progress FROM taken, held RETURNING seq
    ), counted AS (
        UPDATE event_numbers SET last = n.last FROM (SELECT max(seq) AS last FROM numbered) AS n WHERE n.last IS NOT NULL
    )
    SELECT count(*), coalesce(max(seq), (SELECT last FROM held)) FROM numbered
$$;

-- After a restore the numbers go on above all that were given since the backup: there is no
-- microsecond in which two are given.
-- +goose StatementBegin
CREATE FUNCTION note_restore() RETURNS void LANGUAGE sql AS $$
    SELECT number_events(2147483647);
    UPDATE audit_tree SET era = greatest(era + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
    UPDATE event_numbers SET last = greatest(last, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
    UPDATE freeze_numbers SET last = greatest(last + 1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
    UPDATE leases SET forgot = true;
    INSERT INTO new_events (kind) VALUES ('restored');
$$;
-- +goose StatementEnd

----------------------------------------------------------------- webhooks ---

-- Who is told of events by HTTP. The private halves of its keys are in no table: they are derived from a key file of the
-- hub and the ids here. See docs/decisions/0035.
CREATE TABLE webhooks (
    id             uuid PRIMARY KEY,
    name           text NOT NULL CONSTRAINT webhooks_name UNIQUE,
    url            text NOT NULL,
    types          text[] NOT NULL,             -- of what it is told; and
    states         text[] NOT NULL,             -- of agents only changes to these; none = to any
    state          text NOT NULL DEFAULT 'active' CONSTRAINT webhook_state_is_known CHECK (state IN ('active', 'disabled')),
    why            text NOT NULL DEFAULT '',    -- it is disabled
    disabled_by    text NOT NULL DEFAULT '',    -- who has disabled it: self = this instance
    disabled_at    timestamptz,
    cursor         bigint NOT NULL,             -- the last event for which there is a delivery, or was none to make
    given_up       bigint,                      -- first event of those that were given up as it was disabled
    key            uuid NOT NULL,               -- that signs, and
    old_key        uuid,                        -- that signs, too,
    old_key_until  timestamptz,                 -- until then
    failures       int NOT NULL DEFAULT 0,      -- in a row
    failing_since  timestamptz,
    held_until     timestamptz,                 -- nothing is sent before, as was settled
    held_at        timestamptz,                 -- then
    last_error     text NOT NULL DEFAULT '',    -- of the last try that failed
    created_by     text NOT NULL,
    created_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT name_is_a_name CHECK (name ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    CONSTRAINT name_is_no_id CHECK (name !~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'),
    CONSTRAINT failures_have_begun CHECK ((failures > 0) = (failing_since IS NOT NULL)),
    CONSTRAINT what_is_disabled_is_by_somebody CHECK ((state = 'disabled') = (disabled_by <> '') AND (state = 'disabled') = (disabled_at IS NOT NULL))
) WITH (fillfactor = 50);

-- What one of them is told, and how that went.
CREATE TABLE webhook_deliveries (
    n             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id            text NOT NULL CONSTRAINT an_event_is_delivered_once UNIQUE,   -- as the receiver is told: of webhook and event
    webhook       uuid NOT NULL,                -- who makes one holds its webhook; of one that was deleted they go as rows are pruned, since they are many
    first         bigint,                       -- number of the event, or of the first of those of which it tells; null = a test
    type          text NOT NULL,
    body          text NOT NULL,
    at            timestamptz NOT NULL,         -- of the event
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    state         text NOT NULL DEFAULT 'pending' CONSTRAINT delivery_state_is_known CHECK (state IN ('pending', 'delivered', 'failed')),
    tries         int NOT NULL DEFAULT 0,       -- with the one that goes on
    next_try_at   timestamptz NOT NULL DEFAULT clock_timestamp(),   -- as was settled
    waits_since   timestamptz NOT NULL DEFAULT clock_timestamp(),   -- then
    leased_until  timestamptz,                  -- somebody tries it
    status        int NOT NULL DEFAULT 0,       -- of the last answer; 0 = there was none
    error         text NOT NULL DEFAULT '',     -- of the last try
    told          boolean NOT NULL DEFAULT false,   -- it was delivered before, and is sent again
    ended_at      timestamptz,
    CONSTRAINT pending_has_not_ended CHECK ((state = 'pending') = (ended_at IS NULL))
) WITH (fillfactor = 70);
CREATE INDEX webhook_deliveries_newest ON webhook_deliveries (webhook, n);
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (webhook, next_try_at) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_since ON webhook_deliveries (webhook, waits_since) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_leased ON webhook_deliveries (webhook, leased_until) WHERE leased_until IS NOT NULL;
CREATE INDEX webhook_deliveries_oldest ON webhook_deliveries (webhook, at) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_ended ON webhook_deliveries (ended_at) WHERE ended_at IS NOT NULL;

----------------------------------------------------------------- messages ---

-- What agents, workers and people of a workspace tell each other: docs/decisions/0056. One row has the last
-- number. Whoever adds messages holds it until its commit, so a number is visible no later than the next one.
CREATE TABLE message_numbers (
    singleton   boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    last        bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
INSERT INTO message_numbers DEFAULT VALUES;

CREATE TABLE messages (
    seq         bigint PRIMARY KEY,
    workspace   text NOT NULL,              -- or the id of the connection whose agents speak with each other
    id          uuid NOT NULL,              -- chosen by the sender
    at          timestamptz NOT NULL,
    sender      text NOT NULL,
    recipient   text NOT NULL DEFAULT '',   -- '' = all readers of the workspace
    type        text NOT NULL,
    correlation text NOT NULL DEFAULT '',
    in_reply_to uuid,
    payload     text NOT NULL DEFAULT '',   -- JSON, or
    blob        text NOT NULL DEFAULT '',   -- the digest of bytes that are no part of this database
    size        bigint NOT NULL DEFAULT 0,  -- of the payload, or of those bytes
    said_by     text NOT NULL,              -- who gave it to this instance
    CONSTRAINT payload_or_blob CHECK (payload = '' OR blob = ''),
    CONSTRAINT payload_is_small CHECK (octet_length(payload) <= 4096),
    UNIQUE (workspace, id)
);
CREATE INDEX messages_to ON messages (workspace, recipient, seq);
CREATE INDEX messages_all ON messages (workspace, seq);
CREATE INDEX messages_from ON messages (workspace, sender, seq);
CREATE INDEX messages_type ON messages (workspace, type, seq);
CREATE INDEX messages_thread ON messages (workspace, correlation, seq) WHERE correlation <> '';
CREATE INDEX messages_blob ON messages (blob) WHERE blob <> '';
-- The words of a payload, and what no word is: the workspace behind a space. By both the index finds those of one workspace.
CREATE FUNCTION message_words(workspace text, payload text) RETURNS tsvector LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN to_tsvector('simple', payload) || array_to_tsvector(ARRAY[' ' || workspace]);
CREATE INDEX messages_words ON messages USING gin (message_words(workspace, payload));

-- How many messages are kept, with how many bytes, and up to which number retention has removed some.
CREATE TABLE message_workspaces (
    workspace   text PRIMARY KEY,
    kept        bigint NOT NULL DEFAULT 0,
    bytes       bigint NOT NULL DEFAULT 0,
    pruned      bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
CREATE TABLE message_senders (
    workspace   text NOT NULL,
    name        text NOT NULL,
    kept        bigint NOT NULL DEFAULT 0,
    bytes       bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (workspace, name)
) WITH (fillfactor = 50);
CREATE TABLE message_recipients (           -- of messages that are not for all
    workspace   text NOT NULL,
    name        text NOT NULL,
    bytes       bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (workspace, name)
) WITH (fillfactor = 50);

-- A reader and how far it is. Only what it acknowledges moves acked, which never goes back or beyond delivered.
CREATE TABLE message_readers (
    workspace   text NOT NULL,
    name        text NOT NULL,
    acked       bigint NOT NULL DEFAULT 0,
    delivered   bigint NOT NULL DEFAULT 0,
    head        bigint NOT NULL DEFAULT 0,  -- the first that it was given and has not acknowledged
    tries       int NOT NULL DEFAULT 0,     -- how often that one has failed
    head_at     timestamptz,                -- when that one was delivered; null = it has failed since then
    seen        timestamptz NOT NULL DEFAULT clock_timestamp(),
    due_at      timestamptz,                -- and when it comes again
    since       bigint NOT NULL DEFAULT 0,  -- of those for all it needs none up to this number
    dropped_at  timestamptz,                -- nobody had seen it for long: nothing is kept for it
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (workspace, name),
    CONSTRAINT acked_was_delivered CHECK (acked <= delivered)
) WITH (fillfactor = 50);

-- What a reader could not use. It stops nothing behind it.
CREATE TABLE message_dead (
    workspace   text NOT NULL,
    reader      text NOT NULL,
    seq         bigint NOT NULL,
    tries       int NOT NULL,
    why         text NOT NULL DEFAULT '',
    at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    again       boolean NOT NULL DEFAULT false,   -- it is to be delivered once more
    given_at    timestamptz,                      -- when it was
    PRIMARY KEY (workspace, reader, seq)
);
CREATE INDEX message_dead_seq ON message_dead (seq);
CREATE INDEX message_dead_at ON message_dead (at);

-- Who waits for messages.
CREATE TABLE message_listeners (
    id      uuid PRIMARY KEY,
    until   timestamptz NOT NULL
);

-- Adds messages in their order. What is there already with the same content stays, and is no error.
-- +goose StatementBegin
CREATE FUNCTION publish_messages(workspaces text[], ids uuid[], senders text[], recipients text[], types text[], correlations text[], replies uuid[], payloads text[], blob_refs text[], says text[], most_of_workspace bigint, most_of_sender bigint,
        bytes_of_workspace bigint, bytes_of_sender bigint, bytes_of_recipient bigint)
    RETURNS TABLE (n int, outcome text, number bigint, stored timestamptz) LANGUAGE plpgsql AS $$
DECLARE
    next bigint;
    old messages;
    more bigint;
BEGIN
    SELECT m.last INTO STRICT next FROM message_numbers m FOR UPDATE;
    -- The table before its rows: who forgets blobs locks it against writers first. The rows in the order in which others hold several of them.
    IF EXISTS (SELECT FROM unnest(blob_refs) AS d WHERE d <> '') THEN
        LOCK TABLE blobs IN ROW EXCLUSIVE MODE;
        PERFORM FROM blobs b WHERE (b.digest, b.owner) IN (SELECT d, 'ws/' || w FROM unnest(blob_refs, workspaces) AS u (d, w) WHERE d <> '') ORDER BY b.digest, b.owner FOR UPDATE;
    END IF;
    FOR i IN 1 .. cardinality(ids) LOOP
        n := i;
        SELECT * INTO old FROM messages m WHERE m.workspace = workspaces[i] AND m.id = ids[i];
        IF FOUND THEN
            outcome := CASE WHEN (old.sender, old.recipient, old.type, old.correlation, coalesce(old.in_reply_to::text, ''), old.payload, old.blob)
                = (senders[i], recipients[i], types[i], correlations[i], coalesce(replies[i]::text, ''), payloads[i], blob_refs[i]) THEN 'known' ELSE 'other' END;
            number := old.seq;
            stored := old.at;
            RETURN NEXT;
            CONTINUE;
        END IF;
        number := 0;
        stored := clock_timestamp();
        more := CASE WHEN blob_refs[i] = '' THEN octet_length(payloads[i]) ELSE (SELECT b.size FROM blobs b WHERE b.digest = blob_refs[i] AND b.owner = 'ws/' || workspaces[i]) END;
        outcome := CASE
            WHEN more IS NULL THEN 'blob'
            WHEN EXISTS (SELECT FROM message_workspaces w WHERE w.workspace = workspaces[i] AND w.kept >= most_of_workspace) THEN 'full'
            WHEN EXISTS (SELECT FROM message_senders s WHERE (s.workspace, s.name) = (workspaces[i], senders[i]) AND s.kept >= most_of_sender) THEN 'many'
            WHEN more + coalesce((SELECT w.bytes FROM message_workspaces w WHERE w.workspace = workspaces[i]), 0) > bytes_of_workspace THEN 'large'
            WHEN more + coalesce((SELECT s.bytes FROM message_senders s WHERE (s.workspace, s.name) = (workspaces[i], senders[i])), 0) > bytes_of_sender THEN 'much'
            WHEN recipients[i] <> '' AND more + coalesce((SELECT r.bytes FROM message_recipients r WHERE (r.workspace, r.name) = (workspaces[i], recipients[i])), 0) > bytes_of_recipient THEN 'mailbox'
            ELSE 'new' END;
        IF outcome <> 'new' THEN
            RETURN NEXT;
            CONTINUE;
        END IF;
        INSERT INTO message_workspaces AS w (workspace, kept, bytes) VALUES (workspaces[i], 1, more) ON CONFLICT (workspace) DO UPDATE SET kept = w.kept + 1, bytes = w.bytes + more;
        INSERT INTO message_senders AS s (workspace, name, kept, bytes) VALUES (workspaces[i], senders[i], 1, more) ON CONFLICT (workspace, name) DO UPDATE SET kept = s.kept + 1, bytes = s.bytes + more;
        IF recipients[i] <> '' THEN
            INSERT INTO message_recipients AS r (workspace, name, bytes) VALUES (workspaces[i], recipients[i], more) ON CONFLICT (workspace, name) DO UPDATE SET bytes = r.bytes + more;
        END IF;
        IF blob_refs[i] <> '' THEN
            UPDATE blobs b SET at = clock_timestamp() WHERE b.digest = blob_refs[i] AND b.owner = 'ws/' || workspaces[i];
        END IF;
        next := next + 1;
        INSERT INTO messages (seq, workspace, id, at, sender, recipient, type, correlation, in_reply_to, payload, blob, size, said_by)
            VALUES (next, workspaces[i], ids[i], stored, senders[i], recipients[i], types[i], correlations[i], replies[i], payloads[i], blob_refs[i], more, says[i]);
        number := next;
        RETURN NEXT;
    END LOOP;
    UPDATE message_numbers m SET last = next WHERE m.last <> next;
END $$;
-- +goose StatementEnd

-- The first message that a live reader of a workspace has not acknowledged; null = there is none.
CREATE FUNCTION message_needed(w text) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT min(least(own.seq, every.seq)) FROM message_readers r
        LEFT JOIN LATERAL (SELECT m.seq FROM messages m WHERE m.workspace = r.workspace AND m.recipient = r.name AND m.seq > r.acked ORDER BY m.seq LIMIT 1) AS own ON true
        LEFT JOIN LATERAL (SELECT m.seq FROM messages m WHERE m.workspace = r.workspace AND m.recipient = '' AND m.seq > greatest(r.acked, r.since) ORDER BY m.seq LIMIT 1) AS every ON true
        WHERE r.workspace = w AND r.dropped_at IS NULL
$$;

-- Removes old messages that no live reader needs. It takes the last number first, as whoever adds some.
-- +goose StatementBegin
CREATE FUNCTION prune_messages(keep interval, batch int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    w text;
    needed bigint;
    n bigint;
    total bigint := 0;
BEGIN
    PERFORM FROM message_numbers FOR UPDATE;
    UPDATE message_readers SET dropped_at = clock_timestamp() WHERE dropped_at IS NULL AND seen < clock_timestamp() - interval '30 days';
    DELETE FROM message_readers WHERE dropped_at < clock_timestamp() - interval '180 days';
    DELETE FROM message_readers r WHERE starts_with(r.name, 'agent:')
        AND NOT EXISTS (SELECT FROM tasks t WHERE t.id = CASE WHEN r.name ~ '^agent:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' THEN substr(r.name, 7)::uuid END AND NOT is_terminal(t.state));
    DELETE FROM message_dead d WHERE d.at < clock_timestamp() - interval '30 days'
        OR NOT EXISTS (SELECT FROM message_readers r WHERE r.workspace = d.workspace AND r.name = d.reader AND r.dropped_at IS NULL);
    FOR w IN SELECT workspace FROM message_workspaces ORDER BY workspace LOOP
        needed := coalesce(message_needed(w), 9223372036854775807);
        WITH old AS MATERIALIZED (
            SELECT m.seq, m.at FROM messages m WHERE m.workspace = w AND m.seq < needed AND NOT EXISTS (SELECT FROM message_dead d WHERE d.seq = m.seq) ORDER BY m.seq LIMIT least(batch, 1000)
        ), gone AS (
            DELETE FROM messages m USING old o WHERE m.seq = o.seq AND o.at < clock_timestamp() - keep RETURNING m.seq, m.sender, m.recipient, m.size
        ), fewer AS (
            UPDATE message_senders s SET kept = s.kept - g.n, bytes = s.bytes - g.less FROM (SELECT sender, count(*) AS n, sum(size) AS less FROM gone GROUP BY sender) AS g WHERE s.workspace = w AND s.name = g.sender
        ), lighter AS (
            UPDATE message_recipients r SET bytes = r.bytes - g.less FROM (SELECT recipient, sum(size) AS less FROM gone GROUP BY recipient) AS g WHERE r.workspace = w AND r.name = g.recipient
        ), noted AS (
            UPDATE message_workspaces x SET kept = x.kept - g.n, bytes = x.bytes - g.less, pruned = greatest(x.pruned, g.upto)
                FROM (SELECT count(*) AS n, sum(size) AS less, max(seq) AS upto FROM gone) AS g WHERE x.workspace = w AND g.n > 0
        )
        SELECT count(*) INTO n FROM gone;
        total := total + n;
    END LOOP;
    DELETE FROM message_senders WHERE kept <= 0;
    DELETE FROM message_recipients WHERE bytes <= 0;
    RETURN total;
END $$;
-- +goose StatementEnd

---------------------------------------------------------------- retention ---

-- What pruning of each kind is told and does; kinds without a row have not been
-- pruned yet.
CREATE TABLE retention (
    kind       text PRIMARY KEY,
    keep       interval,             -- null = the program's default
    pruned_at  timestamptz,          -- the last time
    removed    bigint NOT NULL DEFAULT 0,       -- rows, that time
    behind     boolean NOT NULL DEFAULT false,  -- more rows are to go than time allowed
    bytes      bigint,               -- how much there was at bytes_at, a day ago or less
    bytes_at   timestamptz,
    bounds     text,                 -- of logs: how much the hub that ran last keeps at most, besides keep
    CONSTRAINT keep_is_positive CHECK (keep > interval '0')
);

-- How much there is of a kind: its tables, or what is kept in files as its sums say.
CREATE FUNCTION kept_bytes(kind text, tables text[]) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT CASE kind WHEN 'logs' THEN (SELECT coalesce(sum(bytes), 0) FROM log_sums)
        WHEN 'envelopes' THEN (SELECT coalesce(sum(kept_bytes), 0) FROM sequences)
        ELSE (SELECT sum(pg_total_relation_size(n::regclass)) FROM unnest(tables) AS n) END::bigint
$$;

-- Notes now and then what is confirmed, so that an eighth more than keep later it is known
-- to have been confirmed for so long. It holds what it notes: what is opened again leaves
-- the notes, too, and has to see them.
-- +goose StatementBegin
CREATE FUNCTION note_confirmed(keep interval) RETURNS void LANGUAGE sql AS $$
    DELETE FROM confirmed_before WHERE at > clock_timestamp();  -- by a clock that was ahead
    INSERT INTO confirmed_before (conn, numbers) SELECT c.conn, c.numbers FROM confirmed c
        LEFT JOIN LATERAL (SELECT at, numbers FROM confirmed_before WHERE conn = c.conn ORDER BY at DESC LIMIT 1) AS last ON true
        WHERE c.numbers <> coalesce(last.numbers, '{}') AND coalesce(last.at < statement_timestamp() - keep / 8, true)
        FOR NO KEY UPDATE OF c SKIP LOCKED;
    DELETE FROM confirmed_before b WHERE at < (SELECT max(at) FROM confirmed_before WHERE conn = b.conn AND at < statement_timestamp() - keep);
$$;
-- +goose StatementEnd

-- Removes messages that were confirmed so long ago. A peer that was restored from a
-- backup gets again what it has lost; and both sides compare the newest messages as
-- long as they can be accepted. What comes behind the first message of the period was
-- confirmed within it, too, whatever a clock said that was set back: the removal ends at
-- that message, and reads no further than to the last one that it removes (a bitmap would be
-- of all). First it looks for connections that have such messages, which may take a while,
-- and holds nothing meanwhile: whoever confirms would wait. Then it holds each of these, so
-- that nothing is opened again and removed at once.
-- +goose StatementBegin
CREATE FUNCTION prune_outbox(keep interval, batch int) RETURNS bigint LANGUAGE plpgsql SET enable_bitmapscan = off AS $$
DECLARE
    period tstzrange := tstzrange(statement_timestamp() - keep, statement_timestamp(), '[]');
    conns uuid[];
    over boolean[];    -- the connection has ended
    newest bigint[];   -- the first of the 2,000 newest, null where there are not as many
    expiry timestamptz[];
    old int8multirange;
    removed bigint := 0;
    more bigint;
BEGIN
    SELECT array_agg(c.conn), array_agg(c.ended), array_agg(few.seq), array_agg(few.exp) INTO conns, over, newest, expiry
    FROM (
        SELECT s.conn, has_ended(k.state) AS ended, s.numbers, s.numbers * b.numbers AS old
        FROM confirmed s JOIN connections k ON k.id = s.conn, LATERAL (SELECT numbers FROM confirmed_before WHERE conn = s.conn AND at < lower(period) ORDER BY at DESC LIMIT 1) AS b
        WHERE NOT period @> (SELECT created_at FROM outbox WHERE conn = s.conn ORDER BY seq LIMIT 1)
    ) AS c, LATERAL (
        SELECT CASE count(*) WHEN 2000 THEN min(n.seq) END AS seq, min(n.exp) AS exp FROM (
            SELECT o.seq, o.exp FROM (SELECT r FROM unnest(c.numbers) AS r ORDER BY r DESC) AS ranges, LATERAL (
                SELECT seq, exp FROM outbox WHERE conn = c.conn AND seq >= coalesce(lower(r), 1) AND seq < coalesce(upper(r), 9223372036854775807) ORDER BY seq DESC LIMIT 2000) AS o
            LIMIT 2000) AS n
    ) AS few
    WHERE (SELECT NOT o.recent FROM unnest(c.old) AS r, LATERAL (
        SELECT period @> created_at AS recent FROM outbox WHERE conn = c.conn AND seq >= coalesce(lower(r), 1) AND seq < coalesce(upper(r), 9223372036854775807)
            AND (period @> created_at OR exp < statement_timestamp() - interval '1 day' OR c.ended OR seq < few.seq AND exp <= few.exp) ORDER BY seq LIMIT 1) AS o LIMIT 1);
    FOR i IN 1 .. coalesce(cardinality(conns), 0) LOOP
        EXIT WHEN removed >= batch;
        SELECT s.numbers * b.numbers INTO old FROM confirmed s JOIN confirmed_before b ON b.conn = s.conn AND b.at < lower(period)
            WHERE s.conn = conns[i] ORDER BY b.at DESC LIMIT 1 FOR NO KEY UPDATE OF s SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        WITH next AS MATERIALIZED (
            SELECT o.at, o.seq, o.recent FROM unnest(old) AS r, LATERAL (
                SELECT ctid AS at, seq, period @> created_at AS recent FROM outbox WHERE conn = conns[i] AND seq >= coalesce(lower(r), 1) AND seq < coalesce(upper(r), 9223372036854775807)
                    AND (period @> created_at OR exp < statement_timestamp() - interval '1 day' OR over[i] OR seq < newest[i] AND exp <= expiry[i])
                ORDER BY seq LIMIT batch) AS o
            LIMIT batch - removed
        ), gone AS (
            DELETE FROM outbox WHERE ctid = ANY (ARRAY (SELECT at FROM next WHERE seq < coalesce((SELECT min(seq) FROM next WHERE recent), 9223372036854775807))) RETURNING 1
        ) SELECT count(*) INTO more FROM gone;
        removed := removed + more;
    END LOOP;
    RETURN removed;
END $$;
-- +goose StatementEnd

-- Removes tasks that ended so long ago, and all that is kept about them. One that
-- others wait for stays: it may be retried.
-- +goose StatementBegin
CREATE FUNCTION prune_tasks(keep interval, batch int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    before timestamptz := clock_timestamp() - keep;
    old uuid[];
BEGIN
    SELECT array_agg(task) INTO old FROM (
        SELECT e.task FROM ended e WHERE e.at < before AND NOT EXISTS (SELECT FROM dependencies d WHERE d.dependency = e.task AND NOT d.met) ORDER BY e.at LIMIT batch) AS candidates;
    SELECT array_agg(id) INTO old FROM (
        SELECT id FROM tasks WHERE id = ANY (old) AND ended_at < before ORDER BY id FOR UPDATE SKIP LOCKED) AS held;
    -- Asked again with the tasks held, against which no edge can be added any more:
    -- a task that came to wait for one since the first look would wait for ever.
    SELECT array_agg(id) INTO old FROM unnest(old) AS held (id) WHERE NOT EXISTS (SELECT FROM dependencies d WHERE d.dependency = id AND NOT d.met);
    IF old IS NULL THEN RETURN 0; END IF;
    INSERT INTO tallies (workspace, lane, what, n) SELECT workspace, lane, state::text, -count(*) FROM tasks WHERE id = ANY (old) GROUP BY 1, 2, 3;
    DELETE FROM dependencies WHERE task = ANY (old);
    DELETE FROM dependencies WHERE dependency = ANY (old);
    DELETE FROM sessions WHERE task = ANY (old);
    UPDATE kills SET tombstone = true WHERE task = ANY (old) AND NOT tombstone;
    DELETE FROM agents WHERE id = ANY (old);
    DELETE FROM usage_reports WHERE task = ANY (old);
    DELETE FROM ended_attempts WHERE task = ANY (old);
    DELETE FROM progress WHERE task = ANY (old);
    DELETE FROM questions WHERE task = ANY (old);
    DELETE FROM task_checkpoints WHERE task = ANY (old);
    DELETE FROM overruns WHERE task = ANY (old);
    DELETE FROM pauses WHERE task = ANY (old);
    DELETE FROM ended e USING tasks t WHERE t.id = ANY (old) AND e.workspace = t.workspace AND e.state = t.state::text AND e.archived IN (false, true) AND e.task = t.id;
    DELETE FROM task_bodies WHERE task = ANY (old);
    DELETE FROM tasks WHERE id = ANY (old);
    RETURN cardinality(old);
END $$;
-- +goose StatementEnd

------------------------------------------------- what no program may change ---

-- +goose StatementBegin
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND current_setting('spawnmesh.pruning_audit', true) = 'on'
        AND current_user = (SELECT pg_get_userbyid(relowner) FROM pg_class WHERE oid = TG_RELID) THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION 'audit rows are never changed' USING ERRCODE = 'restrict_violation';
END $$;
-- +goose StatementEnd
CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER audit_leaves_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_leaves
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
CREATE TRIGGER audit_hashes_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_hashes
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- The one way by which audit rows go: as the owner of the tables, the oldest ones
-- first, never those of the last week or what is no leaf of the tree yet, and another row says so. Rows that were
-- written while the clock was ahead are older than the first row that is not
-- ahead, and go with it.
-- +goose StatementBegin
CREATE FUNCTION prune_audit(keep interval, batch int) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER SET search_path = public AS $$
DECLARE
    n bigint;
    last bigint;
    before timestamptz := clock_timestamp() - keep;
    credible bigint;
BEGIN
    IF keep IS NULL OR keep < interval '7 days' THEN
        RAISE EXCEPTION 'audit rows are kept for 7 days at least' USING ERRCODE = 'restrict_violation';
    END IF;
    SELECT seq INTO credible FROM (SELECT seq, at FROM audit WHERE at <= clock_timestamp() ORDER BY seq LIMIT 1) AS first WHERE at < before;
    IF credible IS NULL THEN
        RETURN 0;
    END IF;
    PERFORM set_config('spawnmesh.pruning_audit', 'on', true);
    WITH old AS (
        DELETE FROM audit WHERE seq IN (SELECT seq FROM (SELECT seq, at FROM audit ORDER BY seq LIMIT batch) AS first WHERE at < before OR seq < credible)
            AND EXISTS (SELECT FROM audit_leaves l WHERE l.seq = audit.seq) RETURNING seq
    ) SELECT count(*), max(seq) INTO n, last FROM old;
    IF n > 0 THEN
        INSERT INTO audit (actor, action, object, why) VALUES ('self', 'audit.pruned', last::text, n || ' rows up to ' || last || ', older than ' || keep);
    END IF;
    PERFORM set_config('spawnmesh.pruning_audit', '', true);
    RETURN n;
END $$;
-- +goose StatementEnd
REVOKE EXECUTE ON FUNCTION prune_audit FROM PUBLIC;
GRANT EXECUTE ON FUNCTION prune_audit TO spawnmesh_engine;

-- +goose StatementBegin
CREATE FUNCTION refuse_final() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a row of % is %, which is final', TG_TABLE_NAME, OLD.state
        USING ERRCODE = 'restrict_violation', CONSTRAINT = 'terminal_is_final';
END $$;
-- +goose StatementEnd
-- A task moves as the table transitions lists, whatever the program does. Out of a
-- terminal state only an operator's retry leads, and it is counted. While an attempt
-- holds a task its row says queued, so an end is a move from queued. Asked after the
-- update: a trigger before it locks every row once more. The move that nearly every task
-- makes is listed and not looked up: 5 µs are a tenth of the end of one of many.
-- +goose StatementBegin
CREATE FUNCTION refuse_move() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.state >= 'completed' AND (NEW.replays <> OLD.replays + 1 OR NEW.state <> 'queued') THEN
        RAISE EXCEPTION 'a row of tasks is %, which is final', OLD.state USING ERRCODE = 'restrict_violation', CONSTRAINT = 'terminal_is_final';
    END IF;
    IF NOT EXISTS (SELECT FROM transitions WHERE from_state = OLD.state AND to_state = NEW.state) THEN
        RAISE EXCEPTION 'a task does not go from % to %', OLD.state, NEW.state USING ERRCODE = 'restrict_violation', CONSTRAINT = 'move_is_listed';
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER tasks_moved AFTER UPDATE ON tasks FOR EACH ROW
    WHEN (OLD.state <> NEW.state AND NOT (OLD.state = 'queued' AND NEW.state = 'completed'))
    EXECUTE FUNCTION refuse_move();

CREATE TRIGGER mirrors_terminal AFTER UPDATE ON mirrors FOR EACH ROW
    WHEN (is_terminal(OLD.state) AND (NEW.state <> OLD.state OR OLD.final_digest IS NOT NULL AND NEW.final_digest IS DISTINCT FROM OLD.final_digest))
    EXECUTE FUNCTION refuse_final();

-- A revoked connection never comes back; a new peering is a new connection.
CREATE TRIGGER connections_terminal BEFORE UPDATE ON connections FOR EACH ROW
    WHEN (has_ended(OLD.state) AND NEW.state <> OLD.state)
    EXECUTE FUNCTION refuse_final();

----------------------------------------------------- what statements share ---

-- Whether an input of a task is not held yet, for the connection that asked for the task.
CREATE FUNCTION awaits_input(t uuid) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT EXISTS (SELECT FROM blob_uses u WHERE u.task = t AND NOT u.result AND NOT EXISTS (
        SELECT FROM blobs b WHERE b.digest = u.digest AND b.size = u.size AND b.owner = (SELECT x.conn::text FROM tasks x WHERE x.id = t)))
$$;

-- What a queued task says while a dependency of it has ended without success, or inputs of it are on their way.
CREATE FUNCTION waiting_reason(t uuid) RETURNS text LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN EXISTS (SELECT FROM dependencies d JOIN tasks x ON x.id = d.dependency WHERE d.task = t AND NOT d.met AND is_terminal(x.state)) THEN 'dependency_failed'
        WHEN awaits_input(t) THEN 'waiting_input' ELSE '' END
$$;

-- What the end of an attempt counts as. An agent that was begun and lost has
-- failed, with a limit of its own; one that was not begun was merely not there.
CREATE FUNCTION counts_as(outcome text, max_losses int) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN max_losses IS NULL THEN outcome WHEN outcome = 'interrupted' THEN 'lost' WHEN outcome = 'released' THEN 'interrupted' ELSE outcome END
$$;

-- Whether a task is being killed, or was: by the word of who asked for it, or of
-- the host that runs it, or with the connection that asked for it.
CREATE FUNCTION is_kill(reason text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
$$ SELECT reason IN ('kill_requested', 'operator', 'link_revoked') $$;

-- Whether somebody has asked for the end of a task, and is to be told of it.
CREATE FUNCTION is_asked(reason text) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
$$ SELECT reason IN ('kill_requested', 'operator', 'link_revoked', 'cancel_requested') $$;

-- Of the orders to end an agent those count that its spoke has not refused: any, one that ends it in time, a kill.
CREATE FUNCTION end_ordered(kills jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
$$ SELECT coalesce(kills @? '$[*] ? (!(@.state == "refused"))', false) $$;
CREATE FUNCTION end_limited(kills jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
$$ SELECT coalesce(kills @? '$[*] ? (!(@.state == "refused") && !(@.cancel == "after"))', false) $$;
CREATE FUNCTION kill_ordered(kills jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
$$ SELECT coalesce(kills @? '$[*] ? (!(@.state == "refused") && !exists(@.cancel))', false) $$;

-- Why an order ended that its hub had wanted to end: its kills were all cancels, or not.
CREATE FUNCTION reason_of(kills jsonb) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS
$$ SELECT CASE WHEN kill_ordered(kills) THEN 'kill_requested' ELSE 'cancel_requested' END $$;

-- Where the end of an attempt leads (rows 4, 5, 8, 11, 17, 19 and 20 of the
-- model's table), by what it counts as. A kill that was asked for wins over
-- whatever the attempt says; a cancel lets it complete, fail or run out of time, and lets no other follow.
CREATE FUNCTION next_state(outcome text, final boolean, reason text, retries int, max_retries int, max_losses int, reclaims int, parks int, asking boolean, pausing boolean) RETURNS task_state
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    -- Constants of the type, not one cast at the end: a cast looks the name up for every row.
    SELECT CASE WHEN is_kill(reason) THEN task_state 'cancelled'
        WHEN outcome = 'delivered' THEN CASE reason WHEN 'cancel_requested' THEN task_state 'cancelled' ELSE 'in_review' END   -- nobody reviews what was cancelled
        WHEN outcome = 'succeeded' THEN task_state 'completed' WHEN outcome = 'timed_out' THEN task_state 'expired'
        WHEN reason = 'cancel_requested' THEN CASE outcome WHEN 'failed' THEN task_state 'failed' ELSE 'cancelled' END
        WHEN outcome IN ('killed', 'cancelled') THEN task_state 'cancelled' WHEN outcome = 'unavailable' THEN task_state 'unavailable'
        WHEN outcome = 'blocked' THEN task_state 'blocked'
        -- What is paused runs again by the word of who resumes it, also where it was lost for good.
        WHEN pausing AND NOT (reclaims >= 100 AND parks >= 100) AND (outcome IN ('released', 'lost', 'interrupted', 'parked') OR outcome = 'failed' AND NOT final AND retries < max_retries) THEN task_state 'paused'
        WHEN outcome = 'released' THEN task_state 'queued'
        WHEN outcome = 'failed' AND NOT final AND retries < max_retries THEN task_state 'queued'
        WHEN outcome = 'lost' AND retries < max_losses THEN CASE WHEN asking THEN task_state 'awaiting_input' ELSE task_state 'queued' END   -- the answer leads on
        WHEN outcome = 'interrupted' AND reclaims < 100 THEN task_state 'queued'
        WHEN outcome = 'parked' AND parks < 100 THEN CASE WHEN asking THEN task_state 'awaiting_input' ELSE task_state 'queued' END
        ELSE task_state 'failed' END
$$;

-- The reason that goes with next_state.
CREATE FUNCTION next_reason(outcome text, final boolean, why text, reason text, retries int, max_retries int, max_losses int, reclaims int) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN is_kill(reason) OR reason = 'cancel_requested' THEN reason WHEN outcome = 'killed' THEN 'kill_requested' WHEN outcome = 'succeeded' THEN ''
        WHEN outcome = 'timed_out' THEN 'deadline_elapsed' WHEN outcome = 'unavailable' THEN coalesce(nullif(why, ''), 'capability_missing')
        WHEN outcome = 'cancelled' THEN 'cancel_requested'
        WHEN outcome = 'interrupted' AND reclaims >= 100 THEN 'reclaims_exhausted'
        WHEN outcome = 'lost' AND max_losses > 0 AND retries >= max_losses THEN 'retries_exhausted'
        WHEN why <> '' THEN why
        WHEN outcome = 'parked' THEN 'limit'
        WHEN outcome = 'lost' OR outcome = 'interrupted' AND max_losses IS NULL THEN 'executor_died'   -- an agent that was not begun has lost nobody
        WHEN outcome = 'failed' AND NOT final AND max_retries > 0 AND retries >= max_retries THEN 'retries_exhausted'
        ELSE '' END
$$;

-- Ends a transaction that would have to wait for somebody out of turn: it begins
-- anew.
-- +goose StatementBegin
CREATE FUNCTION raced() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'somebody else changes the same rows at this moment' USING ERRCODE = 'serialization_failure';
END $$;
-- +goose StatementEnd

------------------------------------------------------------------- access ---

-- Row-level security. Two roles share these tables: spawnmesh_app sees one
-- workspace, named for one transaction, and nothing when none is named;
-- spawnmesh_engine moves what time and the link move, in all of them. See
-- docs/decisions/0007.
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO spawnmesh_engine;
GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO spawnmesh_engine, spawnmesh_app;
-- +goose StatementBegin
DO $$
DECLARE
    t text;
    here text := 'workspace = (SELECT nullif(current_setting(''spawnmesh.workspace'', true), ''''))';
    or_all text := format('(%s OR (workspace = '''' AND (SELECT nullif(current_setting(''spawnmesh.workspace'', true), '''')) IS NOT NULL))', here);
BEGIN
    FOREACH t IN ARRAY ARRAY['tasks', 'task_bodies', 'ready', 'due', 'parked', 'dependencies', 'leases', 'ended_attempts', 'progress', 'questions', 'task_checkpoints', 'overruns', 'classes', 'counts', 'tallies',
        'lanes', 'freezes', 'budgets', 'budget_shards', 'charges', 'usage_reports', 'ended', 'quotas', 'quota_uses', 'account_limits', 'claimers', 'audit', 'messages', 'message_workspaces', 'message_readers', 'message_dead'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', t);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', t);
        EXECUTE format('CREATE POLICY engine ON %I TO spawnmesh_engine USING (true) WITH CHECK (true)', t);
        -- What holds for the whole instance binds every workspace, so each may see and count against it.
        EXECUTE format('CREATE POLICY here ON %I TO spawnmesh_app USING (%s) WITH CHECK (%2$s)', t,
            CASE WHEN t IN ('freezes', 'budgets', 'budget_shards', 'charges', 'quotas', 'quota_uses') THEN or_all ELSE here END);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I TO spawnmesh_app', t);
    END LOOP;
END $$;
-- +goose StatementEnd
-- Workers see what binds the whole instance, and claims hold it. Only the owner
-- changes it, who acts as the engine.
-- +goose StatementBegin
CREATE FUNCTION refuse_instance_wide() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_user = 'spawnmesh_app' AND '' IN (coalesce(OLD.workspace, 'none'), coalesce(NEW.workspace, 'none')) THEN
        RAISE EXCEPTION 'a row of % that binds the whole instance is changed by the owner of the instance only', TG_TABLE_NAME
            USING ERRCODE = 'insufficient_privilege', HINT = 'limit or freeze a workspace, or let the owner do it';
    END IF;
    RETURN coalesce(NEW, OLD);
END $$;
-- +goose StatementEnd
CREATE TRIGGER budgets_instance_wide BEFORE INSERT OR UPDATE OR DELETE ON budgets FOR EACH ROW EXECUTE FUNCTION refuse_instance_wide();
CREATE TRIGGER quotas_instance_wide BEFORE INSERT OR UPDATE OR DELETE ON quotas FOR EACH ROW EXECUTE FUNCTION refuse_instance_wide();
CREATE TRIGGER freezes_instance_wide BEFORE INSERT OR UPDATE OR DELETE ON freezes FOR EACH ROW EXECUTE FUNCTION refuse_instance_wide();
CREATE POLICY pruning ON audit TO CURRENT_USER USING (current_setting('spawnmesh.pruning_audit', true) = 'on') WITH CHECK (true);
REVOKE UPDATE, DELETE ON audit FROM spawnmesh_engine, spawnmesh_app;
REVOKE UPDATE, DELETE ON audit_leaves, audit_hashes FROM spawnmesh_engine;
REVOKE INSERT, UPDATE, DELETE ON transitions, attempts, standing, funds, counted, grants_in_force FROM spawnmesh_engine;
GRANT SELECT ON transitions, attempts, standing, funds, counted TO spawnmesh_app;
-- What an act on a task that a hub asked for needs to tell the hub.
GRANT SELECT ON connections, grants, grants_in_force, latches, pauses, recalled TO spawnmesh_app;
GRANT SELECT ON hub_blobs, order_inputs, peer_work TO spawnmesh_app;
GRANT SELECT, INSERT, UPDATE ON blobs TO spawnmesh_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON blob_uses TO spawnmesh_app;
GRANT SELECT, INSERT ON outbox TO spawnmesh_app;
GRANT SELECT, INSERT, UPDATE ON sequences, kills TO spawnmesh_app;
-- It makes keys for claim grants and ends their signing, and changes no secret.
GRANT SELECT, INSERT, UPDATE (signs_until) ON grant_keys TO spawnmesh_app;
GRANT SELECT, UPDATE ON sessions, agents TO spawnmesh_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON listeners TO spawnmesh_app;
