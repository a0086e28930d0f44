"""A store with S3's interface, in this process: checks every signature with nothing of ours, keeps objects in memory, and
does wrong what it is told to do wrong."""
import contextlib
import hashlib
import hmac
import http.server
import json
import re
import socketserver
import threading
import time
import urllib.parse
import xml.sax.saxutils

BUCKET = "a-bucket.1"
REGION = "eu-test-1"
PAGE = 2  # names in a part of a list, so that every list has several
PART_MIN = 5 << 20
FAULTS = {"503": (503, "SlowDown"), "403": (403, "AccessDenied"), "507": (507, "InsufficientStorage"), "error200": (200, "InternalError")}


def _hmac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def signature_of(secret, scope, time_text, canonical):
    key = f"AWS4{secret}".encode()
    for part in scope.split("/"):
        key = _hmac(key, part)
    text = "\n".join(("AWS4-HMAC-SHA256", time_text, scope, hashlib.sha256(canonical.encode()).hexdigest()))
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


class Refusal(Exception):
    def __init__(self, status, code):
        super().__init__(code)
        self.status, self.code = status, code


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, status, code):
        self.answer(status, f"<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>as told</Message></Error>".encode())

    def checked(self, body):
        """Key and query of a request whose signature holds."""
        path, _, query = self.path.partition("?")
        said = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/]+)/([^,]+), SignedHeaders=([^,]+), Signature=([0-9a-f]{64})",
                            self.headers.get("Authorization", ""))
        if not said:
            raise Refusal(403, "AccessDenied")
        access, scope, names, signature = said.groups()
        day, region, *rest = scope.split("/")
        time_text, content = self.headers["x-amz-date"], self.headers["x-amz-content-sha256"]
        if region != REGION or rest != ["s3", "aws4_request"] or day != time_text[:8]:
            raise Refusal(400, "AuthorizationHeaderMalformed")
        if access not in self.server.keys:
            raise Refusal(403, "ExpiredToken" if access in self.server.expired else "InvalidAccessKeyId")
        must = {"host", "x-amz-date", "x-amz-content-sha256"} | {name.lower() for name in self.headers if name.lower().startswith("x-amz-")}
        if not must <= set(names.split(";")):
            raise Refusal(403, "AccessDenied")
        ordered = "&".join(sorted(query.split("&"))) if query else ""
        headers = "".join(f"{name}:{self.headers[name].strip()}\n" for name in names.split(";"))
        canonical = "\n".join((self.command, path, ordered, headers, names, content))
        secret, token = self.server.keys[access]
        if signature_of(secret, scope, time_text, canonical) != signature or token != self.headers.get("x-amz-security-token", ""):
            raise Refusal(403, "SignatureDoesNotMatch")
        if hashlib.sha256(body).hexdigest() != content:
            raise Refusal(400, "XAmzContentSHA256Mismatch")
        bucket, _, key = urllib.parse.unquote(path).lstrip("/").partition("/")
        if bucket != BUCKET:
            raise Refusal(404, "NoSuchBucket")
        return key, dict(urllib.parse.parse_qsl(query, keep_blank_values=True))

    def do_any(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path.startswith("/latest/"):
            return self.metadata()
        name = urllib.parse.unquote(self.path.partition("?")[0])
        fault = self.server.fault(self.command, name)
        with self.server.lock:
            self.server.requests.append((self.command, name, fault))
        if fault == "silence":
            self.server.awake.wait(120)
            self.close_connection = True
            return None
        if fault == "reset":
            self.close_connection = True
            return self.connection.close()
        if fault == "cut":
            self.close_connection = True
            return self.answer(200, b"<half", Content_Length="1000000")
        if isinstance(fault, tuple):  # status and body
            return self.answer(*fault)
        if fault:
            return self.refuse(*FAULTS[fault])
        try:
            key, query = self.checked(body)
            with self.server.lock:
                return getattr(self, f"on_{self.command.lower()}")(key, query, body)
        except Refusal as why:
            return self.refuse(why.status, why.code)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_any

    def metadata(self):
        """As an EC2 machine's service, of version 2."""
        self.server.metadata_asked += 1
        if self.server.metadata_fault:
            return self.answer(self.server.metadata_fault)
        if self.command == "PUT" and self.path == "/latest/api/token":
            return self.answer(200, b"a-token")
        if self.headers.get("x-aws-ec2-metadata-token") != "a-token":
            return self.answer(401)
        if self.path.endswith("/security-credentials/"):
            return self.answer(200, b"a-role")
        access, (secret, token) = list(self.server.keys.items())[-1]
        ends = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + self.server.key_lasts))
        self.server.asked_for_key += 1
        return self.answer(200, json.dumps({"Code": "Success", "AccessKeyId": access, "SecretAccessKey": secret, "Token": token,
                                            "Expiration": ends}).encode())

    def object(self, key):
        if key not in self.server.objects:
            raise Refusal(404, "NoSuchKey")
        data = self.server.objects[key]
        etag = '"' + hashlib.md5(data).hexdigest() + '"'
        if self.headers.get("If-Match", etag) != etag:
            raise Refusal(412, "PreconditionFailed")
        return data, etag

    def on_head(self, key, _, __):
        data, etag = self.object(key)
        self.answer(200, Content_Length=str(len(data)), ETag=etag)

    def on_get(self, key, query, _):
        if not key:
            return self.list(query)
        data, etag = self.object(key)
        said = self.headers.get("Range")
        if not said:
            return self.answer(200, data, ETag=etag)
        first, last = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", said).groups())
        if first >= len(data):
            raise Refusal(416, "InvalidRange")
        part = data[first:last + 1]
        self.server.read.append((key, len(part)))
        return self.answer(206, part, ETag=etag, Content_Range=f"bytes {first}-{first + len(part) - 1}/{len(data)}")

    def list(self, query):
        prefix, delimiter = query["prefix"], query.get("delimiter")
        names = {}
        for key in sorted(self.server.objects):
            if key.startswith(prefix):
                cut = key.find(delimiter, len(prefix)) if delimiter else -1
                names[key if cut < 0 else key[:cut + 1]] = cut < 0
        rest = [name for name in names if name > query.get("continuation-token", "")]
        page, more = rest[:PAGE], len(rest) > PAGE
        out = ["<?xml version=\"1.0\"?>\n<ListBucketResult>", f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>"]
        if more:
            out.append(f"<NextContinuationToken>{xml.sax.saxutils.escape(page[-1])}</NextContinuationToken>")
        for name in page:
            text = urllib.parse.quote(name, safe="/")
            out.append(f"<Contents><Key>{text}</Key></Contents>" if names[name] else f"<CommonPrefixes><Prefix>{text}</Prefix></CommonPrefixes>")
        self.answer(200, "".join((*out, "</ListBucketResult>")).encode())

    def on_put(self, key, query, body):
        if "uploadId" in query:
            self.server.uploads[query["uploadId"]][int(query["partNumber"])] = body
        elif self.headers.get("If-None-Match") == "*" and key in self.server.objects:
            raise Refusal(412, "PreconditionFailed")
        else:
            self.server.objects[key] = body
        self.answer(200, ETag='"' + hashlib.md5(body).hexdigest() + '"')

    def on_post(self, key, query, body):
        if "uploads" in query:
            number = str(len(self.server.uploads) + 1)
            self.server.uploads[number] = {}
            return self.answer(200, f"<InitiateMultipartUploadResult><UploadId>{number}</UploadId></InitiateMultipartUploadResult>".encode())
        parts = self.server.uploads.pop(query["uploadId"])
        said = [int(n) for n in re.findall(r"<PartNumber>(\d+)</PartNumber>", body.decode())]
        if said != sorted(parts) or any(len(parts[n]) < PART_MIN for n in said[:-1]):
            raise Refusal(400, "InvalidPart")
        self.server.objects[key] = b"".join(parts[n] for n in said)
        return self.answer(200, b"<CompleteMultipartUploadResult><ETag>\"a-2\"</ETag></CompleteMultipartUploadResult>")

    def on_delete(self, key, query, _):
        if "uploadId" in query:
            self.server.uploads.pop(query["uploadId"], None)
        else:
            self.server.objects.pop(key, None)
        self.answer(204)


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.lock = threading.Lock()
        self.keys = {"AKEY": ("a-secret", "")}  # secrets and session tokens
        self.expired = set()
        self.objects, self.uploads, self.requests = {}, {}, []
        self.read = []  # names and bytes of parts
        self.fault = lambda method, name: None
        self.awake = threading.Event()  # ends silences
        self.key_lasts, self.asked_for_key, self.metadata_fault, self.metadata_asked = 3600, 0, None, 0
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request, client_address):
        pass  # a client that is killed

    def environment(self, home, **more):
        """Of processes that use it, and find no other key than this one."""
        access, (secret, token) = list(self.keys.items())[-1]
        return {"AWS_ENDPOINT_URL_S3": self.url, "AWS_REGION": REGION, "HOME": home, "AWS_EC2_METADATA_DISABLED": "true", "no_proxy": "127.0.0.1", "NO_PROXY": "127.0.0.1",
                "AWS_ACCESS_KEY_ID": access, "AWS_SECRET_ACCESS_KEY": secret, **({"AWS_SESSION_TOKEN": token} if token else {}), **more}


@contextlib.contextmanager
def serving():
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server
    finally:
        server.awake.set()
        server.shutdown()
        thread.join()
        server.server_close()
