-- Who may read and write by SQL (docs/security.md). Policies hold for all but the tables' owner, who is whoever migrated:
-- what the operator does as that role costs nothing more than before.

-- What a role of the server may read. Whoever owns this schema writes it; the operator does not.
CREATE TABLE reader (
    role           text NOT NULL,             -- a login, or a group whose members inherit from it; public: every role
    namespace      text NOT NULL,             -- *: all of them
    PRIMARY KEY (role, namespace)
);

-- The asking role's own. With its owner's rights: nobody needs any to the table, and every policy asks it.
CREATE VIEW readable WITH (security_barrier) AS
SELECT DISTINCT r.namespace FROM reader r
WHERE r.role = 'public'
   OR EXISTS (SELECT FROM pg_roles p WHERE p.rolname = r.role AND pg_has_role(p.oid, 'USAGE'));
GRANT SELECT ON readable TO PUBLIC;

-- Each relation of this schema, and which of its rows a reader sees: a migration that makes one adds it here.
CREATE TABLE access_rule (
    relation       text PRIMARY KEY,
    rule           text NOT NULL CHECK (rule IN (
        'namespace',                          -- those of its namespaces
        'session',                            -- those of sessions that it sees
        'gpu',                                -- those of its sessions' GPUs, from the times of these sessions
        'all',                                -- all, for they are nobody's
        'nobody',                             -- none
        'view',                               -- of a view: as of the tables behind it
        'own'))                               -- of a view: what it shows is the reader's own
);
INSERT INTO access_rule VALUES
    ('session', 'namespace'), ('target', 'namespace'),
    ('pattern', 'namespace'), ('pattern_metric', 'namespace'), ('pattern_share', 'namespace'),
    ('process', 'session'), ('layer', 'session'), ('activity', 'session'), ('sample', 'session'), ('attribution', 'session'),
    ('fit', 'session'), ('item', 'session'), ('estimate', 'session'), ('fine', 'session'), ('kernel', 'session'),
    ('host_wait', 'session'), ('gpu_copy', 'session'), ('rank', 'session'), ('rank_item', 'session'),
    ('usage', 'session'), ('usage_metric', 'session'), ('usage_share', 'session'),
    ('metric_sample', 'gpu'),
    ('metric', 'all'), ('schema_migration', 'all'), ('access_rule', 'all'),
    ('reader', 'nobody'),
    ('latest_session', 'view'), ('result', 'view'), ('result_detail', 'view'), ('result_quality', 'view'),
    ('result_kernel', 'view'), ('result_wait', 'view'), ('result_copy', 'view'), ('rank_now', 'view'),
    ('result_rank', 'view'), ('result_rank_item', 'view'),
    ('readable', 'own');

-- Raw samples are found by GPU and time: whose they are too.
CREATE INDEX attribution_by_gpu ON attribution (gpu_uuid);

-- Whoever could read before goes on reading all, until the owner says otherwise.
INSERT INTO reader
SELECT DISTINCT coalesce(r.rolname, 'public'), '*'
FROM access_rule a
JOIN pg_class c ON c.relname = a.relation AND c.relnamespace = current_schema()::regnamespace
CROSS JOIN LATERAL aclexplode(c.relacl) g
LEFT JOIN pg_roles r ON r.oid = g.grantee
WHERE g.privilege_type = 'SELECT' AND g.grantee <> c.relowner AND a.rule <> 'own'
UNION
SELECT 'pg_read_all_data', '*' WHERE EXISTS (SELECT FROM pg_auth_members WHERE roleid = 'pg_read_all_data'::regrole);

-- What needs the tables' owner, for writers that are not: with its rights, and every name said in full, since the search
-- path is the caller's.
DO $do$
BEGIN
    EXECUTE format($body$
        CREATE OR REPLACE FUNCTION %1$s.metric_sample_partitions(from_ns bigint, to_ns bigint) RETURNS void
        LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $f$
        DECLARE
            day_ns CONSTANT bigint := 86400000000000;
            part text;
        BEGIN
            FOR day IN from_ns / day_ns .. to_ns / day_ns LOOP
                part := '%1$s.metric_sample_' || day;
                CONTINUE WHEN to_regclass(part) IS NOT NULL;
                PERFORM pg_advisory_xact_lock(7738142, 1);
                CONTINUE WHEN to_regclass(part) IS NOT NULL;
                EXECUTE format('CREATE TABLE %%s (LIKE %1$s.metric_sample INCLUDING ALL)', part);
                -- Policies are the whole table's: nobody reads a day by itself.
                EXECUTE format('ALTER TABLE %%s ENABLE ROW LEVEL SECURITY', part);
                EXECUTE format('ALTER TABLE %1$s.metric_sample ATTACH PARTITION %%s FOR VALUES FROM (%%s) TO (%%s)',
                               part, day * day_ns, (day + 1) * day_ns);
            END LOOP;
        END $f$;

        CREATE OR REPLACE FUNCTION %1$s.metric_sample_drop(before_ns bigint, max_parts integer) RETURNS bigint
        LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $f$
        DECLARE
            part text;
            dropped bigint := 0;
        BEGIN
            PERFORM pg_advisory_xact_lock(7738142, 1);
            FOR part IN
                -- Apart, or names of other relations may be taken for numbers: which comes first is the planner's choice.
                WITH parts AS MATERIALIZED (
                    SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                    WHERE i.inhparent = '%1$s.metric_sample'::regclass)
                SELECT p.relname FROM parts p
                WHERE (substr(p.relname, 15)::bigint + 1) * 86400000000000 <= before_ns
                ORDER BY substr(p.relname, 15)::bigint LIMIT max_parts
            LOOP
                EXECUTE format('DROP TABLE %1$s.%%I', part);
                dropped := dropped + 1;
            END LOOP;
            RETURN dropped;
        END $f$;

        CREATE OR REPLACE FUNCTION %1$s.metric_columns() RETURNS void
        LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $f$
        DECLARE
            missing text;
        BEGIN
            FOR missing IN
                SELECT m.name FROM %1$s.metric m
                WHERE NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = '%1$s.sample'::regclass
                                  AND a.attname = m.name AND NOT a.attisdropped)
            LOOP
                EXECUTE format('ALTER TABLE %1$s.sample ADD COLUMN %%I double precision', missing);
            END LOOP;
        END $f$;
        $body$, quote_ident(current_schema()));
END $do$;
REVOKE EXECUTE ON FUNCTION metric_sample_partitions(bigint, bigint), metric_sample_drop(bigint, integer), metric_columns()
    FROM PUBLIC;
DO $$
DECLARE
    part regclass;
BEGIN
    FOR part IN SELECT inhrelid FROM pg_inherits WHERE inhparent = 'metric_sample'::regclass LOOP
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', part);
    END LOOP;
END $$;

-- Whether the group is there. It is made where the migrating role may; else whoever may is told to.
CREATE FUNCTION access_group(name text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) THEN
        EXECUTE format('CREATE ROLE %I NOLOGIN', name);
    END IF;
    RETURN true;
EXCEPTION
    WHEN duplicate_object OR unique_violation THEN
        RETURN true;                          -- another database's operator was faster: roles are the server's
    WHEN OTHERS THEN
        RAISE WARNING 'the role % is not there, and % may not create it (%): whoever may is to run CREATE ROLE % NOLOGIN',
            name, current_user, SQLERRM, name;
        RETURN false;
END $$;

-- The policies, as far as they are not there.
CREATE FUNCTION access_protect(relation regclass, rule text, writers boolean) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    ours CONSTANT text := 'namespace = ANY (ARRAY(SELECT r.namespace FROM readable r)) OR '
                          '''*'' = ANY (ARRAY(SELECT r.namespace FROM readable r))';
    seen CONSTANT text := CASE rule
        WHEN 'namespace' THEN ours
        WHEN 'session' THEN format('EXISTS (SELECT FROM session s WHERE s.uid = %s.session_uid)', relation)
        WHEN 'gpu' THEN
            'EXISTS (SELECT FROM attribution a JOIN target t USING (session_uid, pod_uid) JOIN session s ON s.uid = session_uid '
            'WHERE a.gpu_uuid = metric_sample.gpu_uuid '
            'AND metric_sample.at_ns - s.prometheus_shift_ns BETWEEN t.observed_first_ns AND t.observed_last_ns) '
            'OR ''*'' = ANY (ARRAY(SELECT r.namespace FROM readable r))'
        WHEN 'all' THEN 'true'
        ELSE 'false' END;
BEGIN
    IF NOT (SELECT relrowsecurity FROM pg_class WHERE oid = relation) THEN
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', relation);
    END IF;
    IF NOT EXISTS (SELECT FROM pg_policy WHERE polrelid = relation AND polname = 'readers') THEN
        EXECUTE format('CREATE POLICY readers ON %s FOR SELECT USING (%s)', relation, seen);
    END IF;
    IF writers AND NOT EXISTS (SELECT FROM pg_policy WHERE polrelid = relation AND polname = 'writers') THEN
        EXECUTE format('CREATE POLICY writers ON %s TO precisionprobe_writer USING (true)', relation);
    END IF;
END $$;

-- GRANT writes the catalog even where there is nothing to do.
CREATE FUNCTION access_grant(role text, relation regclass, rights text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM unnest(string_to_array(rights, ', ')) r WHERE NOT has_table_privilege(role, relation, r)) THEN
        EXECUTE format('GRANT %s ON %s TO %I', rights, relation, role);
    END IF;
END $$;

CREATE FUNCTION access_grant_schema(role text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF NOT has_schema_privilege(role, current_schema(), 'USAGE') THEN
        EXECUTE format('GRANT USAGE ON SCHEMA %I TO %I', current_schema(), role);
    END IF;
EXCEPTION
    WHEN OTHERS THEN
        RAISE WARNING 'the role % has no right to the schema % (%)', role, current_schema(), SQLERRM;
END $$;

-- Brings groups, grants, policies and the views' rights to what access_rule says. Called after each migration and at every
-- connect: the groups may come later, and another release of the server.
CREATE FUNCTION access_settle() RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    here CONSTANT oid := current_schema()::regnamespace;
    -- Before Postgres 15 a view has its owner's rights, whom no policy binds.
    invoker CONSTANT boolean := current_setting('server_version_num')::integer >= 150000;
    writers boolean;
    readers boolean;
    written boolean;
    relations regclass[];
    rules text[];
    invoked boolean[];
BEGIN
    IF NOT pg_has_role((SELECT relowner FROM pg_class WHERE oid = 'session'::regclass), 'USAGE') THEN
        RETURN;                               -- a writer: these are not its tables
    END IF;
    IF NOT invoker THEN
        RAISE WARNING 'before Postgres 15 a view has its owner''s rights: precisionprobe_reader reads tables alone';
    END IF;
    writers := access_group('precisionprobe_writer');
    readers := access_group('precisionprobe_reader');
    IF writers THEN
        PERFORM access_grant_schema('precisionprobe_writer');
        GRANT EXECUTE ON FUNCTION metric_sample_partitions(bigint, bigint), metric_sample_drop(bigint, integer),
            metric_columns() TO precisionprobe_writer;
    END IF;
    IF readers THEN
        PERFORM access_grant_schema('precisionprobe_reader');
    END IF;
    -- Read as a whole first: a table that is being read cannot be altered.
    SELECT array_agg(c.oid::regclass), array_agg(a.rule), array_agg('security_invoker=true' = ANY (c.reloptions))
    INTO relations, rules, invoked
    FROM access_rule a JOIN pg_class c ON c.relname = a.relation AND c.relnamespace = here;
    FOR i IN 1 .. cardinality(relations) LOOP
        written := rules[i] IN ('namespace', 'session', 'gpu') OR relations[i] = 'metric'::regclass;
        IF rules[i] NOT IN ('view', 'own') THEN
            PERFORM access_protect(relations[i], rules[i], writers AND written);
        ELSIF rules[i] = 'view' AND invoker AND invoked[i] IS NOT TRUE THEN
            EXECUTE format('ALTER VIEW %s SET (security_invoker = true)', relations[i]);
        END IF;
        IF writers AND rules[i] <> 'nobody' THEN
            PERFORM access_grant('precisionprobe_writer', relations[i],
                                 CASE WHEN written THEN 'SELECT, INSERT, UPDATE, DELETE' ELSE 'SELECT' END);
        END IF;
        IF readers AND rules[i] <> 'nobody' AND (invoker OR rules[i] <> 'view') THEN
            PERFORM access_grant('precisionprobe_reader', relations[i], 'SELECT');
        END IF;
    END LOOP;
END $$;
REVOKE EXECUTE ON FUNCTION access_group(text), access_protect(regclass, text, boolean), access_grant(text, regclass, text),
    access_grant_schema(text) FROM PUBLIC;
