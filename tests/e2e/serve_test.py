"""`starling generate --serve`: completions as OpenAI's clients ask for them, and what a client may send and do."""
import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time

from chats import chat_tokenizer, job_on
from harness import PATIENCE, STARLING, main, require
from harness import written as file_of


def trained(place):
    """The folder of a model over bytes."""
    return place.quiet(place.job(steps=60)).out


def trained_on_chats(place):
    """The folder of a model whose tokenizer's settings say how chats are written."""
    lines = file_of(place, "said.jsonl", "".join(json.dumps({"messages": [
        {"role": "user", "content": f"what is {n}?"}, {"role": "assistant", "content": f" it is {n}"}]}) + "\n" for n in range(60)))
    out = place.path("said")
    done = subprocess.run([STARLING, "tokenize", lines, "--tokenizer", chat_tokenizer(place), "--out", out, "--chat", "chatml"],
                          capture_output=True, text=True, timeout=PATIENCE)
    require(done.returncode == 0, done.stderr)
    return place.quiet(job_on(place, out, 402, steps=60, context=64)).out


def written(model, *words):
    return subprocess.run([STARLING, "generate", model, *map(str, words)], capture_output=True, text=True, check=True,
                          timeout=PATIENCE).stdout


class Server:
    def __init__(self, model, *words):
        self.process = subprocess.Popen([STARLING, "generate", model, "--serve", "0", *map(str, words)], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        at = re.fullmatch(r"completions of (\S+) are at http://127\.0\.0\.1:(\d+)/v1/completions(, chats at /v1/chat/completions)?; Ctrl-C ends it\n", line)
        require(at, line + (self.process.stderr.read() if not line else ""))
        self.name, self.port = at[1], int(at[2])

    def ask(self, body, method="POST", path="/v1/completions", **headers):
        """Status and text of the answer."""
        if not isinstance(body, (str, bytes)):
            body = json.dumps(body)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        connection.request(method, path, body or None, {"Content-Type": "application/json"} | headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text

    def completion(self, **asked):
        status, text = self.ask(asked)
        require(status == 200, text)
        return json.loads(text)

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        require(self.process.wait(PATIENCE) == 128 + number, f"exit code {self.process.returncode}")
        require(not self.process.stderr.read(), "words on standard error")


@contextlib.contextmanager
def serving(model, *words):
    server = Server(model, *words)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
        server.process.wait()


def it_writes_what_the_command_writes(place):
    model = trained(place)
    with serving(model) as server:
        one = server.completion(prompt="ab", max_tokens=50, temperature=0)
        choice = one["choices"][0]
        require("ab" + choice["text"] + "\n" == written(model, "--prompt", "ab", "--tokens", 50, "--temperature", 0), str(one))
        require(choice["finish_reason"] == "length" and one["object"] == "text_completion" and one["model"] == server.name, str(one))
        require(one["usage"] == {"prompt_tokens": 2, "completion_tokens": 50, "total_tokens": 52}, str(one))
        # The same words of a request and of the command: temperature 1 is OpenAI's usual one.
        drawn = server.completion(prompt="ab", max_tokens=50, seed=7, top_p=0.9, model=server.name, user="me", n=1, stop=None)
        require("ab" + drawn["choices"][0]["text"] + "\n" == written(
            model, "--prompt", "ab", "--tokens", 50, "--temperature", 1, "--seed", 7, "--top-p", 0.9), str(drawn))
        stop = choice["text"][20:23]
        ended = server.completion(prompt=["ab"], max_tokens=50, temperature=0, stop=[stop], echo=True)["choices"][0]
        require(ended["finish_reason"] == "stop" and ended["text"] == "ab" + choice["text"][:choice["text"].index(stop)], str(ended))
        require(len(server.completion(prompt="ab", temperature=0)["choices"][0]["text"].encode()) >= 16, "16 tokens are usual")
        with serving(model + "/", "--temperature", "0") as other:  # what a request says nothing of
            require(other.name == server.name, other.name)
            require(other.completion(prompt="ab", max_tokens=50)["choices"][0]["text"] == choice["text"], "--temperature is not heard")
        # A stream has the same text in pieces.
        status, text = server.ask({"prompt": "ab", "max_tokens": 50, "temperature": 0, "stream": True,
                                   "stream_options": {"include_usage": True}})
        events = [line[6:] for line in text.split("\n\n") if line]
        require(status == 200 and events[-1] == "[DONE]", text)
        events = [json.loads(event) for event in events[:-1]]
        require("".join(event["choices"][0]["text"] for event in events) == choice["text"] and len(events) > 20, text)
        require([event["choices"][0]["finish_reason"] for event in events] == [None] * (len(events) - 1) + ["length"], text)
        require(events[-1]["usage"] == one["usage"], text)
        status, text = server.ask("", "GET", "/v1/models")
        require(status == 200 and json.loads(text)["data"][0]["id"] == server.name, text)
        server.end()


def chats_are_answered(place):
    model = trained_on_chats(place)
    words = ["--temperature", 0, "--tokens", 30]
    answer = written(model, "--message", "what is 7?", *words)
    # The command writes the answer alone, and asks as a prompt does that has the marks itself.
    prompt = "<|im_start|>user\nwhat is 7?<|im_end|>\n<|im_start|>assistant\n"
    require(written(model, "--prompt", prompt, *words) == prompt + answer, f"{answer!r} is not what the prompt gets")
    told = written(model, "--message", "what is 7?", "--system", "be brief", *words)
    require(written(model, "--prompt", "<|im_start|>system\nbe brief<|im_end|>\n" + prompt, *words).endswith(prompt + told), told)
    # A mark that a user writes is text.
    require("<|im_end|>" in prompt and written(model, "--message", "a<|im_end|>b", "--ids", *words), "a mark of a user's")
    with serving(model) as server:
        def chat(**asked):
            status, text = server.ask(asked, path="/v1/chat/completions")
            require(status == 200, text)
            return json.loads(text)
        asked = {"messages": [{"role": "user", "content": "what is 7?"}], "temperature": 0, "max_tokens": 30}
        one = chat(**asked)
        choice = one["choices"][0]
        require(choice["message"] == {"role": "assistant", "content": answer[:-1], "refusal": None}, f"{one} {answer!r}")
        require(one["object"] == "chat.completion" and one["id"].startswith("chatcmpl-"), str(one))
        require(chat(**(asked | {"max_tokens": None, "max_completion_tokens": 30}))["choices"] == one["choices"], "max_completion_tokens")
        parts = [{"type": "text", "text": "what "}, {"type": "text", "text": "is 7?"}]
        require(chat(**(asked | {"messages": [{"role": "user", "content": parts}]}))["choices"] == one["choices"], "texts in parts")
        system = {"role": "system", "content": "be brief"}
        require(chat(**(asked | {"messages": [system, *asked["messages"]]}))["choices"][0]["message"]["content"] == told[:-1], told)
        # Without a number it answers until it has said its end, or the context is full.
        whole = chat(messages=asked["messages"], temperature=0)
        require(whole["choices"][0]["finish_reason"] == "stop" or whole["usage"]["total_tokens"] == 64, str(whole))
        status, text = server.ask(asked | {"stream": True, "stream_options": {"include_usage": True}}, path="/v1/chat/completions")
        events = [line[6:] for line in text.split("\n\n") if line]
        require(status == 200 and events[-1] == "[DONE]", text)
        events = [json.loads(event) for event in events[:-1]]
        deltas = [event["choices"][0]["delta"] for event in events]
        require(deltas[0] == {"role": "assistant", "content": ""} and deltas[-1] == {}, text)
        require("".join(delta.get("content", "") for delta in deltas) == answer[:-1], text)
        require({event["object"] for event in events} == {"chat.completion.chunk"} and events[-1]["usage"] == one["usage"], text)
        for expected, body in (("messages is missing", {}), ("has no messages", {"messages": []}), ("message 1", {"messages": ["a"]}),
                               ('the role "tool"', {"messages": [{"role": "tool", "content": "a"}]}),
                               ('the member "prompt"', {"prompt": "a"}), ('the member "echo"', {"echo": True}),
                               ("tools is", {"tools": [{"type": "function"}]}), ("response_format is", {"response_format": {"type": "json_object"}}),
                               ("that is no text", {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]})):
            status, text = server.ask(body if "messages" in body or not body else body | {"messages": asked["messages"]},
                                      path="/v1/chat/completions")
            require(status == 400 and expected in json.loads(text)["error"]["message"], f"{body}: {status} {text}")
        require(server.ask("", "GET", "/v1/chat/completions")[0] == 405, "GET is answered")
        server.end()
    # Of a model that does not say how chats are written nobody guesses.
    settings = os.path.join(model, "tokenizer_config.json")
    with open(settings) as file:
        said = json.load(file)
    for template in (None, said["chat_template"].replace("assistant", "bot")):
        with open(settings, "w") as file:
            json.dump(said | {"chat_template": template}, file)
        done = subprocess.run([STARLING, "generate", model, "--message", "a"], capture_output=True, text=True, timeout=PATIENCE)
        require(done.returncode == 2 and "--chat says which" in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr)
        require(written(model, "--chat", "chatml", "--message", "what is 7?", *words) == answer, "--chat is not heeded")
    for expected, options in (("no token <|begin_of_text|>", ["--chat", "llama3", "--message", "a"]), ("--message", ["--system", "a"]),
                              ("--message", ["--message", "a", "--prompt", "b"])):
        done = subprocess.run([STARLING, "generate", model, *options], capture_output=True, text=True, timeout=PATIENCE)
        require(done.returncode == 2 and expected in done.stderr, f"{options}: {done.stderr}")


def what_is_not_done_is_refused(place):
    with serving(trained(place)) as server:
        for expected, body in (
                ("is not JSON", "{"), ("no JSON object", "[]"), ("has the key", '{"prompt": "a", "prompt": "b"}'),
                ("prompt is 7", {"prompt": 7}), ("expected one text", {"prompt": ["a", "b"]}),
                ('model is "other", expected', {"model": "other"}), ("max_tokens is 0", {"max_tokens": 0}),
                ("max_tokens is -1", {"max_tokens": -1}), ("temperature is 101", {"temperature": 101}),
                ("top_p is 1.5", {"top_p": 1.5}), ("seed is -1", {"seed": -1}), ("stop is [\"\"]", {"stop": [""]}),
                ("n is 2", {"n": 2}), ("logit_bias is", {"logit_bias": {"5": -100}}), ("presence_penalty is 1", {"presence_penalty": 1}),
                ('the member "logprobs"', {"logprobs": 3}), ('the member "messages"', {"messages": []}), ("stream is 1", {"stream": 1})):
            status, text = server.ask(body)
            require(status == 400 and expected in json.loads(text)["error"]["message"], f"{body}: {status} {text}")
        for wanted, arguments in (
                (404, {"path": "/v1/embeddings"}), (404, {"path": "/"}), (405, {"method": "PUT"}),
                (405, {"method": "POST", "path": "/v1/models"}), (415, {"Content-Type": "text/plain"}),
                (415, {"Content-Type": "application/jsonx"}), (403, {"Host": "example.org"}),
                (403, {"Host": "127.0.0.1.example.org:80"}), (403, {"Host": "localhost:example.org"})):
            status, text = server.ask({"prompt": "a"}, **arguments)
            require(status == wanted and json.loads(text)["error"]["message"], f"{arguments}: {status} {text}")
        for words in ({"Host": "LocalHost:1"}, {"Content-Type": "Application/JSON; charset=utf-8"}, {"path": "/v1/completions?a=b"}):
            require(server.ask({"prompt": "a", "max_tokens": 1}, **words)[0] == 200, f"{words} is refused")
        require(server.ask(b'{"prompt": "a"}\0 x')[0] == 400, "what stands behind a NUL")
        for wanted, head in ((b"400", b"POST /v1/completions HTTP/1.1\r\nContent-Length: -1\r\n\r\n"), (b"400", b"\0\1\2\r\n\r\n"),
                             (b"431", b"GET / HTTP/1.1\r\nX: " + b"x" * 20000 + b"\r\n\r\n")):
            with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as odd:
                odd.sendall(head)
                require(odd.makefile("rb").readline().split()[1:2] == [wanted], f"{head[:60]} is not answered with {wanted}")
        with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as large:  # its body is not waited for
            large.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 17825792\r\n\r\n")
            require(large.makefile("rb").readline().split()[1] == b"413", "a request of 17 MiB")
        server.end(signal.SIGINT)


def clients_that_misbehave_cost_nobody_else(place):
    with serving(trained(place)) as server:
        idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(5)]  # that say nothing
        for connection in idle[:2]:
            connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        garbage = socket.create_connection(("127.0.0.1", server.port))
        garbage.sendall(os.urandom(4096))
        require(server.completion(prompt="a", max_tokens=3)["usage"]["completion_tokens"] == 3, "no answer")
        # One that asks for a million tokens and goes away ends what it asked for, also if it has sent more.
        for more in (b"", b"\r\n"):
            gone = socket.create_connection(("127.0.0.1", server.port))
            body = json.dumps({"prompt": "a", "max_tokens": 1 << 20}).encode()
            gone.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
                         + str(len(body)).encode() + b"\r\n\r\n" + body)
            time.sleep(0.5)
            gone.sendall(more)
            gone.close()
            begun = time.monotonic()
            require(server.completion(prompt="a", max_tokens=3)["usage"]["completion_tokens"] == 3, "no answer after one that left")
            waited = time.monotonic() - begun
            begun = time.monotonic()
            server.completion(prompt="a", max_tokens=1 << 13)
            of_all = (time.monotonic() - begun) * (1 << 20) / (1 << 13)
            require(waited < of_all / 4, f"one that left is written for: {waited:.1f} s, all of it takes {of_all:.1f} s")
        # More than are heard at a time wait for their turn.
        body = json.dumps({"prompt": "a", "max_tokens": 3}).encode()
        many = [socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) for _ in range(40)]
        time.sleep(0.5)
        for connection in many:
            connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
                               + str(len(body)).encode() + b"\r\n\r\n" + body)
        answered = [connection.makefile("rb").readline().split()[1:2] == [b"200"] for connection in many]
        require(all(answered), f"{answered.count(True)} of 40 were answered")
        # And a signal ends one that is being answered.
        asking = threading.Thread(target=suppressed, args=[server])
        asking.start()
        time.sleep(0.5)
        server.end()
        asking.join()
        for connection in [*idle, garbage]:
            connection.close()


def suppressed(server):
    with contextlib.suppress(Exception):
        server.completion(prompt="a", max_tokens=1 << 20)


def what_cannot_be_served_is_one_line(place):
    model = trained(place)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for expected, words in (("Address already in use", ["--serve", taken.getsockname()[1]]), ("--serve", ["--serve", "70000"]),
                                *(("--serve", ["--serve", 0, *words]) for words in (
                                    ["--prompt", "a"], ["--tokens", 3], ["--stop", "e"], ["--past-end"], ["--ids"], ["--samples", 2]))):
            done = subprocess.run([STARLING, "generate", model, *map(str, words)], capture_output=True, text=True, timeout=PATIENCE)
            require(done.returncode == 2 and expected in done.stderr and not done.stdout, f"{words}: {done.returncode} {done.stderr}")


main(it_writes_what_the_command_writes, chats_are_answered, what_is_not_done_is_refused, clients_that_misbehave_cost_nobody_else,
     what_cannot_be_served_is_one_line)
