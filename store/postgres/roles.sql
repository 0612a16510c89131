DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['spawnmesh', 'spawnmesh_backup', 'spawnmesh_engine', 'spawnmesh_app'] LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) THEN
            EXECUTE format('CREATE ROLE %I', name);
        END IF;
    END LOOP;
END $$;

ALTER ROLE spawnmesh LOGIN NOSUPERUSER NOCREATEROLE NOCREATEDB NOREPLICATION NOBYPASSRLS PASSWORD '{spawnmesh}';

ALTER ROLE spawnmesh_backup LOGIN NOSUPERUSER NOCREATEROLE NOCREATEDB REPLICATION NOBYPASSRLS PASSWORD '{spawnmesh_backup}';

ALTER ROLE spawnmesh_engine NOLOGIN NOSUPERUSER NOCREATEROLE NOCREATEDB NOREPLICATION NOBYPASSRLS;

ALTER ROLE spawnmesh_app NOLOGIN NOSUPERUSER NOCREATEROLE NOCREATEDB NOREPLICATION NOBYPASSRLS;

GRANT spawnmesh_engine, spawnmesh_app TO spawnmesh;

ALTER ROLE mesh PASSWORD NULL;

ALTER DATABASE mesh OWNER TO spawnmesh;

REVOKE CONNECT, TEMPORARY ON DATABASE mesh, postgres, template1 FROM PUBLIC;

-- A cluster of an earlier version: there the superuser, whose oid is 10, owns what the migrations made. REASSIGN OWNED
-- refuses that one.
DO $$
DECLARE
    change text;
BEGIN
    FOR change IN
        SELECT format('ALTER SCHEMA %I OWNER TO spawnmesh', nspname) FROM pg_namespace WHERE oid >= 16384 AND nspowner = 10 AND nspname !~ '^pg_'
        UNION ALL
        SELECT format('ALTER TABLE %s OWNER TO spawnmesh', oid::regclass)
        FROM pg_class c WHERE oid >= 16384 AND relowner = 10 AND relkind IN ('r', 'p', 'v', 'm', 'S')
            AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype IN ('a', 'i'))
        UNION ALL
        SELECT format('ALTER TYPE %s OWNER TO spawnmesh', oid::regtype) FROM pg_type WHERE oid >= 16384 AND typowner = 10
            AND (typtype IN ('e', 'd', 'r') OR EXISTS (SELECT FROM pg_class c WHERE c.oid = typrelid AND relkind = 'c'))
        UNION ALL
        SELECT format('ALTER ROUTINE %s OWNER TO spawnmesh', oid::regprocedure) FROM pg_proc WHERE oid >= 16384 AND proowner = 10
        UNION ALL
        SELECT format('ALTER POLICY %I ON %s TO spawnmesh', polname, polrelid::regclass) FROM pg_policy WHERE polroles = '{10}'
    LOOP
        EXECUTE change;
    END LOOP;
END $$;
