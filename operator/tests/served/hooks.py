"""What schemathesis asks (SCHEMATHESIS_HOOKS): nothing that libwebsockets ends the connection for, which test_requests_that_are_wrong
of ../results_test.c has; and pages that go on in the session which they are of."""
import schemathesis

LONGEST = 6000  # bytes, encoded: of a request's head 8 KiB are read


def texts(value):
    if isinstance(value, dict):
        return [text for key, part in value.items() for text in (str(key), *texts(part))]
    if isinstance(value, (list, tuple)):
        return [text for part in value for text in texts(part)]
    return [str(value)]


@schemathesis.hook
def filter_case(context, case):
    if case.method in ("TRACE", "QUERY"):  # libwebsockets does not know them, and answers 403 by itself
        return False
    parts = [text for part in (case.path_parameters, case.query, dict(case.headers or {})) for text in texts(part or {})]
    encoded = "".join(parts).encode("utf-8", "surrogatepass")
    return b"\0" not in encoded and sum(1 if byte < 0x80 else 3 for byte in encoded) < LONGEST


@schemathesis.hook
def map_query(context, query):
    if query and "continue" in query:
        for name in ("uid", "pod", "process"):
            query.pop(name, None)
    return query
