"""Imitations of three clouds' metadata services on this machine, as strict as they are: what the
vendors' pages ask of a request (a token, a header, a version) is demanded, and answered as they do.

A test sets what there is to tell (`notice`, `hint`), puts `faults` in the way, and looks at what was
asked. A fault is taken by the next request for a notice; what it does:
  "500"        answers 500
  "malformed"  answers 200 with bytes that are no answer
  "silent"     takes the request and says nothing until the client has gone
  "expired"    (AWS) forgets all tokens, then answers as always
"""
import datetime
import email.utils
import json
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def _utc(seconds):
    return datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)


class Service:
    """One service on a port of its own; use it in a `with`."""

    cloud = None

    def __init__(self):
        self.changed = threading.Condition()
        self.notice = self.hint = None
        self.faults = []
        self.asked = []  # (method, path without query, kind of answer) of every request
        self.server = None

    def __enter__(self):
        service = self

        class Handler(BaseHTTPRequestHandler):
            def handle_any(self):
                size = int(self.headers.get("Content-Length") or 0)
                service.handle(self, urllib.parse.urlsplit(self.path), self.rfile.read(size))

            do_GET = do_PUT = do_POST = handle_any

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    @property
    def options(self):
        return ["--notices", self.cloud, "--metadata", f"http://127.0.0.1:{self.server.server_port}"]

    def tell(self, notice=None, hint=None):
        with self.changed:
            self.notice, self.hint = notice or self.notice, hint or self.hint
            self.changed.notify_all()

    def count(self, answer):
        with self.changed:
            return sum(kind == answer for _, _, kind in self.asked)

    def answer(self, request, status, body="", headers=(), kind=None):
        with self.changed:
            self.asked.append((request.command, request.path.split("?")[0], kind or str(status)))
        data = body if isinstance(body, bytes) else body.encode()
        try:
            request.send_response(status)
            for name, value in headers:
                request.send_header(name, value)
            request.send_header("Content-Length", str(len(data)))
            request.end_headers()
            request.wfile.write(data)
        except OSError:
            pass  # the client has gone

    def fault(self, request):
        """True: a fault has answered (or not) in the service's place."""
        with self.changed:
            fault = self.faults.pop(0) if self.faults else None
        if fault == "500":
            self.answer(request, 500, "oops", kind="500")
        elif fault == "malformed":
            self.answer(request, 200, b'{"action":\xff\x00', kind="malformed")
        elif fault == "silent":
            with self.changed:
                self.asked.append((request.command, request.path, "silent"))
            while request.connection.recv(1):
                pass
        elif fault == "expired":
            self.forget()
        return fault in ("500", "malformed", "silent")

    def forget(self):
        raise NotImplementedError


class Aws(Service):
    """notice: seconds until the instance is terminated. hint: true."""

    cloud = "aws"

    def __init__(self):
        super().__init__()
        self.tokens = set()
        self.given = 0
        self.time = None

    def forget(self):
        self.tokens.clear()

    def handle(self, request, url, _):
        if url.path == "/latest/api/token":
            if request.command != "PUT" or not request.headers.get(
                    "X-aws-ec2-metadata-token-ttl-seconds", "").isdigit():
                return self.answer(request, 400)
            self.given += 1
            self.tokens.add(f"token-{self.given}==")
            return self.answer(request, 200, f"token-{self.given}==", kind="token")
        if self.fault(request):
            return None
        if request.headers.get("X-aws-ec2-metadata-token") not in self.tokens:
            return self.answer(request, 401)
        if url.path == "/latest/meta-data/spot/instance-action" and self.notice:
            self.time = self.time or _utc(self.notice).strftime("%Y-%m-%dT%H:%M:%SZ")
            return self.answer(request, 200, json.dumps({"action": "terminate", "time": self.time}),
                               kind="notice")
        if url.path == "/latest/meta-data/events/recommendations/rebalance" and self.hint:
            return self.answer(request, 200, json.dumps({"noticeTime": "2026-01-02T08:22:00Z"}),
                               kind="hint")
        return self.answer(request, 404)


class Gcp(Service):
    """notice: true. hint: a word about maintenance of the host."""

    cloud = "gcp"

    def handle(self, request, url, _):
        if request.headers.get("Metadata-Flavor") != "Google":
            return self.answer(request, 403)
        if url.path == "/computeMetadata/v1/instance/maintenance-event":
            return self.answer(request, 200, self.hint or "NONE", kind="maintenance")
        if url.path != "/computeMetadata/v1/instance/preempted":
            return self.answer(request, 404)
        if self.fault(request):
            return None
        query = urllib.parse.parse_qs(url.query)
        if query.get("wait_for_change") == ["true"]:
            with self.changed:
                self.asked.append((request.command, url.path, "waits"))
                self.changed.wait_for(lambda: [self.tag()] != query.get("last_etag"),
                                      int(query["timeout_sec"][0]))
        return self.answer(request, 200, "TRUE" if self.notice else "FALSE",
                           [("Metadata-Flavor", "Google"), ("ETag", self.tag())],
                           kind="notice" if self.notice else "none")

    def tag(self):
        return "c0ffee1" if self.notice else "c0ffee0"


class Azure(Service):
    """notice: seconds until the machine is preempted. hint: true (it is frozen for a moment). There is
    always an event of another machine of the set."""

    cloud = "azure"

    def __init__(self):
        super().__init__()
        self.started = []  # events that the client said need not be waited for
        self.time = None

    def handle(self, request, url, body):
        version = urllib.parse.parse_qs(url.query).get("api-version")
        if request.headers.get("Metadata") != "true" or not version:
            return self.answer(request, 400)
        if url.path == "/metadata/instance/compute/name":
            return self.answer(request, 200, "set_7", kind="name")
        if url.path != "/metadata/scheduledevents":
            return self.answer(request, 404)
        if request.command == "POST":
            with self.changed:
                self.started += [e["EventId"] for e in json.loads(body)["StartRequests"]]
            return self.answer(request, 200, kind="started")
        if self.fault(request):
            return None
        events = [self.event("e-other", "Preempt", "set_8", 30)]
        if self.hint:
            events.append(self.event("e-hint", "Freeze", "set_7", 900))
        if self.notice:
            events.append(self.event("e-mine", "Preempt", "SET_7", self.notice))  # names have no case
        return self.answer(request, 200, json.dumps({"DocumentIncarnation": len(events),
                                                     "Events": events}),
                           kind="notice" if self.notice else "none")

    def event(self, number, kind, machine, seconds):
        when = email.utils.format_datetime(_utc(seconds), usegmt=True)
        return {"EventId": number, "EventType": kind, "ResourceType": "VirtualMachine",
                "Resources": [machine], "EventStatus": "Scheduled", "NotBefore": when}
