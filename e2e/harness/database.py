"""Questions to the result store, asked through psql in Postgres' own pod."""
import json

from .deploy import SERVICES


class Database:
    def __init__(self, cluster, name="precisionprobe"):
        self.cluster = cluster
        self.name = name

    def psql(self, sql, *options):
        return self.cluster.kubectl("-n", SERVICES, "exec", "-i", "postgres-0", "--", "psql", "-X", "-q",
                                    "-v", "ON_ERROR_STOP=1", "-d", self.name, *options, input=sql, timeout=300)

    def rows(self, query):
        """The rows of a SELECT as dictionaries."""
        text = self.psql(f"SELECT coalesce(json_agg(q), '[]') FROM ({query}) q", "-At")
        return json.loads(text)

    def value(self, query):
        rows = self.rows(query)
        return next(iter(rows[0].values())) if rows else None
