"""A served workbench: what is asked of it over the wire, in good and in bad faith."""

import http.client
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.web.served import Served, end_jobs, launch, start_workbench, workbench
from unmask.web.options import ServeOptions
from unmask.web.runs.edit import delete_run
from unmask.web.state import WorkbenchState
from unmask.web.worker.table import CALLS, SLOW_CALLS
from unmask.web.workplace import Workplace

HOSTILE = '<script>document.title="owned"</script>"\'`${1}'


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with workbench(tmp_path_factory.mktemp("root"), "--max-upload", "0.001") as one:
        yield one


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[Any]:
    with served.client() as one:
        yield one


def make_run(root: Path, name: str, lines: int = 3) -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    record = {"format": 2, "kind": "pretrain", "card": "bert-mini", "recipe": {"steps": 10}}
    (folder / "unmask.json").write_text(json.dumps(record))
    log = [json.dumps({"step": i + 1, "loss": 9.0 - i}) for i in range(lines)]
    (folder / "log.jsonl").write_text("\n".join(log) + "\n")
    return folder


def wait_for(check: Any, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_the_page_and_its_files(served: Served, client: Any):
    for path in ("/", "/assets/main.js", "/assets/palette.css", "/assets/pages/home.js"):
        response = client.get(path)
        assert response.status_code == 200
        assert "default-src 'self'" in response.headers["content-security-policy"]
    page = client.get("/").text
    assert "http:" not in page
    assert "https:" not in page


def test_each_call_is_described_with_its_arguments(client: Any):
    paths = client.get("/api/openapi.json").json()["paths"]
    assert {f"/api/call/{name}" for name in CALLS} <= paths.keys()
    body = paths["/api/call/predict"]["post"]["requestBody"]["content"]["application/json"]
    assert body["schema"]["required"] == ["model"]
    properties = body["schema"]["properties"]
    assert properties.keys() >= {"model", "inputs", "files", "labels"}
    assert properties["files"]["items"] == {"type": "string"}
    for arguments, line in (
        ({"texts": ["x"], "model": "a"}, "unknown key 'texts' (known: "),
        ({"inputs": ["x"]}, "model must be given (keys: model, inputs, "),
    ):
        answer = client.post("/api/call/predict", json=arguments)
        assert answer.status_code == 400
        assert answer.json()["error"].startswith(line)


def test_calls_do_not_wait_for_an_export(tmp_path: Path):
    options = ServeOptions(root=str(tmp_path))
    with WorkbenchState.open(options, 0, is_public=False) as state:
        assert set(CALLS) > SLOW_CALLS
        assert state.worker_of("export") is state.slow_worker
        with state.slow_worker._my_turn():  # pyright: ignore[reportPrivateUsage]
            assert not state.worker_of("fill").is_busy


@pytest.mark.parametrize(
    "path",
    ["/assets/../app.py", "/assets/%2e%2e/app.py", "/assets/..%2fapp.py", "/assets//etc/passwd",
     "/assets/pages", "/assets/%00", "/nothing", "/api/nothing", "/docs", "/redoc",
     "/assets/" + "a" * 5000],
)  # fmt: skip
def test_other_paths_hold_nothing(served: Served, path: str):
    raw = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
    raw.request("GET", path, headers={"authorization": f"Bearer {served.secret}"})
    response = raw.getresponse()
    assert response.status in (400, 404)
    assert b"root:" not in response.read()
    raw.close()


def test_what_is_kept_beside_the_runs_is_its_owners_alone(served: Served):
    hidden = served.root / ".unmask"
    for path in (hidden, hidden / "secret", hidden / "jobs"):
        assert path.stat().st_mode & 0o077 == 0, path


@pytest.mark.thorough
def test_what_was_deleted_long_ago_is_removed_at_the_start(tmp_path: Path):
    make_run(tmp_path, "old")
    place = Workplace(tmp_path)
    item = place.trash_folder / delete_run(place, "old").id
    record = json.loads((item / "deleted.json").read_text())
    (item / "deleted.json").write_text(json.dumps(record | {"deleted": 1.0}))
    with workbench(tmp_path):
        wait_for(lambda: not item.exists())


def test_nothing_is_told_without_the_secret(served: Served):
    raw = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
    for method, path in (("GET", "/"), ("GET", "/api/runs"), ("POST", "/api/jobs")):
        raw.request(method, path, headers={"x-unmask": "1"})
        response = raw.getresponse()
        assert response.status == 401
        response.read()
    raw.request("GET", "/api/runs", headers={"host": f"evil.example:{served.port}"})
    response = raw.getresponse()
    assert response.status == 421
    raw.close()


@pytest.mark.parametrize(
    "name",
    ["..", "../x", "/etc", ".unmask", ".unmask/jobs", "a/../b", "a//b", "", "x\x00y", "link"],
)
def test_ids_that_lead_elsewhere(served: Served, client: Any, name: str):
    link = served.root / "link"
    if not link.is_symlink():
        link.symlink_to("/etc")
    for method, path in (
        ("GET", "/api/run"), ("GET", "/api/run/series"), ("GET", "/api/run/report"),
        ("POST", "/api/run/stop"), ("DELETE", "/api/run"), ("GET", "/api/stream"),
    ):  # fmt: skip
        response = client.request(method, path, params={"run": name})
        assert response.status_code in (400, 404), (method, path)
        assert "error" in response.json()


@pytest.mark.parametrize(
    ("command", "values", "field"),
    [
        ("pretrain", {"model": "bert-mini", "data": ["/etc/passwd"], "out": "x"}, "data"),
        ("pretrain", {"model": "bert-mini", "data": ["../x.txt"], "out": "x"}, "data"),
        ("pretrain", {"model": "bert-mini", "data": ["link/passwd"], "out": "x"}, "data"),
        ("pretrain", {"model": "bert-mini", "data": ["link/*"], "out": "x"}, "data"),
        ("pretrain", {"model": "~/m.toml", "data": ["a.txt"], "out": "x"}, "model"),
        ("pretrain", {"model": "bert-mini", "data": ["a"], "out": "../x"}, "out"),
        ("pretrain", {"model": "bert-mini", "data": ["a"], "out": ".hidden"}, "out"),
        ("pretrain", {"model": "bert-mini", "data": ["a"], "out": "x", "steps": "many"}, "steps"),
        ("pretrain", {"model": "bert-mini", "data": ["a"], "out": "x", "no_such": 1}, "no_such"),
        ("pretrain", {"model": "bert-mini", "data": ["a"], "out": "x",
                      "changes": ["tokenizer=/etc"]}, "changes"),
        ("finetune", {"base": "unmask-mini-en", "task": "no-such", "train": "a", "out": "x"},
         "task"),
    ],
)  # fmt: skip
def test_jobs_that_are_refused(
    served: Served, client: Any, command: str, values: dict[str, Any], field: str
):
    link = served.root / "link"
    if not link.is_symlink():
        link.symlink_to("/etc")
    response = client.post("/api/jobs", json={"command": command, "values": values})
    assert response.status_code == 400
    assert response.json()["field"] == field
    assert "\n" not in response.json()["error"]
    assert client.get("/api/jobs").json()["jobs"] == []


def test_a_command_that_is_none(client: Any):
    for name in ("rm", "", "serve", "../pretrain"):
        response = client.post("/api/jobs", json={"command": name, "values": {}})
        assert response.status_code in (400, 404)


def test_uploads_are_kept_once_and_capped(served: Served, client: Any):
    first = client.put("/api/files/a%20text.txt", content=b"one\n")
    again = client.put("/api/files/a%20text.txt", content=b"one\n")
    other = client.put("/api/files/a%20text.txt", content=b"two\n")
    assert first.status_code == 201
    assert again.json()["path"] == first.json()["path"] == ".unmask/files/a text.txt"
    assert other.json()["name"] == "a text-2.txt"
    assert (served.root / other.json()["path"]).read_bytes() == b"two\n"
    assert client.put("/api/files/empty.txt", content=b"").status_code == 400
    outside = client.put("/api/files/..%2F..%2Fx.txt", content=b"x")
    assert outside.status_code in (201, 404)
    if outside.status_code == 201:
        assert outside.json()["path"] == ".unmask/files/x.txt"
    dotted = client.put("/api/files/.ssh", content=b"x")
    assert dotted.json()["path"] == ".unmask/files/ssh"
    names = sorted(path.name for path in (served.root / ".unmask" / "files").iterdir())
    assert not any(name.startswith(".") for name in names)
    sent = client.get("/api/files/a%20text-2.txt")
    assert (sent.content, sent.status_code) == (b"two\n", 200)
    assert sent.headers["content-disposition"].startswith("attachment")
    assert client.get("/api/files/..%2F..%2Fsecret").status_code == 404
    for name in (
        "notes.xlsx",
        "notes-utf8.csv",
    ):  # the second is no copy that was made of the first
        assert client.put(f"/api/files/{name}", content=b"one\n").status_code in (201, 400)
    (served.root / ".unmask/files/a text-utf8.csv").write_text("made of it")
    assert client.delete("/api/files/a%20text.txt").status_code == 200
    names = {one["name"] for one in client.get("/api/files").json()["files"]}
    assert "notes-utf8_.csv" in names
    assert not names & {"a text.txt", "a text-utf8.csv"}
    assert client.delete("/api/files/ssh").status_code == 200
    assert client.delete("/api/files/ssh").status_code == 404


def test_a_large_upload_is_cut_off_before_it_is_sent(served: Served):
    raw = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
    raw.putrequest("PUT", "/api/files/large.txt")
    for name, value in (
        ("authorization", f"Bearer {served.secret}"), ("x-unmask", "1"),
        ("content-length", str(10 * 2**30)),
    ):  # fmt: skip
        raw.putheader(name, value)
    raw.endheaders()
    raw.send(b"x" * 1000)
    assert raw.getresponse().status == 413
    raw.close()
    assert not any((served.root / ".unmask" / "files").glob("*large*"))


def test_a_large_upload_of_no_declared_size_is_cut_off(served: Served, client: Any):
    def pieces() -> Iterator[bytes]:
        for _ in range(64):
            yield b"x" * 2**16

    response = client.put("/api/files/large.txt", content=pieces())
    assert response.status_code == 413
    assert not any((served.root / ".unmask" / "files").glob("*large*"))


def test_a_zip_bomb_is_refused(served: Served, client: Any):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.txt", b"\0" * 2**24)
    response = client.put("/api/files/bomb.zip", content=packed.getvalue())
    assert response.status_code == 413
    assert "unpack" in response.json()["error"]
    assert not any((served.root / ".unmask" / "files").glob("*bomb*"))


def test_texts_from_data_come_back_as_they_are(served: Served, client: Any):
    folder = make_run(served.root, "odd")
    (folder / "README.md").write_text(HOSTILE)
    (folder / "report.html").write_text(f"<p>{HOSTILE}")
    found = client.get("/api/run", params={"run": "odd"})
    assert found.headers["content-type"] == "application/json"
    assert found.json()["card"] == HOSTILE
    report = client.get("/api/run/report", params={"run": "odd"})
    assert report.headers["content-security-policy"].startswith(
        "sandbox allow-scripts; default-src 'none'"
    )
    client.post("/api/run/tags", params={"run": "odd"}, json={"tags": [HOSTILE[:40]]})
    tagged = client.get("/api/run", params={"run": "odd"}).json()["run"]["tags"]
    assert tagged == [HOSTILE[:40]]


def test_what_is_not_changed_is_not_sent_again(served: Served, client: Any):
    make_run(served.root, "still")
    first = client.get("/api/runs")
    again = client.get("/api/runs", headers={"if-none-match": first.headers["etag"]})
    assert again.status_code == 304
    assert again.content == b""


def test_deleting_and_taking_back(served: Served, client: Any):
    make_run(served.root, "mine")
    item = client.delete("/api/run", params={"run": "mine"}).json()["item"]
    assert not (served.root / "mine").exists()
    assert client.get("/api/run", params={"run": "mine"}).status_code == 404
    assert client.post("/api/trash/restore", json={"item": item}).json() == {"run": "mine"}
    assert (served.root / "mine" / "log.jsonl").is_file()


def read_events(client: Any, path: str, headers: dict[str, str], n: int) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    with client.stream("GET", path, headers=headers) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        event: dict[str, Any] = {}
        for line in response.iter_lines():
            name, _, value = line.partition(": ")
            if line and name:
                event[name] = value
            elif "event" in event:
                events.append(event)
                event = {}
            if len(events) == n:
                return events
    return events


def test_a_stream_goes_on_from_the_byte_that_is_known(served: Served, client: Any):
    folder = make_run(served.root, "grows", lines=2)
    first = read_events(client, "/api/stream?run=grows", {}, 1)[0]
    assert first["event"] == "log"
    told = json.loads(first["data"])
    assert [json.loads(line)["step"] for line in told["lines"]] == [1, 2]
    with (folder / "log.jsonl").open("a") as log:
        log.write('{"step": 3, "loss": 6.0}\n{"step": 4, "lo')
    headers = {"last-event-id": first["id"]}
    second = read_events(client, "/api/stream?run=grows", headers, 1)[0]
    told = json.loads(second["data"])
    assert [json.loads(line)["step"] for line in told["lines"]] == [3]
    assert not told["restarted"]
    (folder / "log.jsonl").write_text('{"step": 1, "loss": 9.0}\n')
    third = json.loads(
        read_events(client, "/api/stream?run=grows", {"last-event-id": second["id"]}, 1)[0]["data"]
    )
    assert third["restarted"]
    assert len(third["lines"]) == 1
    for wrong in ("x", "1", "1.2.3.4", "-1.5", "9" * 40 + ".0"):
        event = read_events(client, f"/api/stream?run=grows&after={wrong}", {}, 1)[0]
        assert len(json.loads(event["data"])["lines"]) == 1


def test_many_streams_are_refused_not_waited_for(served: Served, client: Any):
    opened: list[socket.socket] = []
    statuses: list[bytes] = []
    request = (
        f"GET /api/stream HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n"
        f"Authorization: Bearer {served.secret}\r\n\r\n"
    ).encode()
    try:
        for _ in range(100):
            one = socket.create_connection(("127.0.0.1", served.port), timeout=30)
            one.sendall(request)
            opened.append(one)
        statuses = [one.recv(12)[9:12] for one in opened]
        assert statuses.count(b"200") == 64
        assert statuses.count(b"503") == 36
        assert client.get("/api/jobs").status_code == 200
    finally:
        for one in opened:
            one.close()
    wait_for(lambda: read_one_status(served) == b"200", 30)


def read_one_status(served: Served) -> bytes:
    with socket.create_connection(("127.0.0.1", served.port), timeout=30) as one:
        one.sendall(
            f"GET /api/stream HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n"
            f"Authorization: Bearer {served.secret}\r\n\r\n".encode()
        )
        return one.recv(12)[9:12]


def test_the_idle_server_is_small_and_never_imports_torch(served: Served):
    maps = Path(f"/proc/{served.process.pid}/maps")
    status = Path(f"/proc/{served.process.pid}/status")
    if not maps.is_file():
        pytest.skip("no /proc on this system")
    assert "libtorch" not in maps.read_text()
    resident = next(line for line in status.read_text().splitlines() if "VmRSS" in line)
    assert int(resident.split()[1]) < 150 * 1024


@pytest.mark.thorough
def test_open_streams_do_not_block_the_end(tmp_path: Path):
    served = start_workbench(tmp_path)
    stream = socket.create_connection(("127.0.0.1", served.port), timeout=30)
    stream.sendall(
        f"GET /api/stream HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\n"
        f"Authorization: Bearer {served.secret}\r\n\r\n".encode()
    )
    assert stream.recv(12)[9:12] == b"200"
    served.process.send_signal(signal.SIGINT)
    assert served.process.wait(20) == 0
    stream.close()


@pytest.mark.thorough
def test_a_run_from_a_terminal_and_a_killed_server(tmp_path: Path):
    """Jobs outlive the server; a new one finds them, and their lock tells that they run."""
    served = start_workbench(tmp_path)
    with served.client() as client:
        os.mkfifo(tmp_path / "pipe.txt")
        values = {"model": "unmask-mini-en", "input": "pipe.txt"}
        job = client.post("/api/jobs", json={"command": "embed", "values": values}).json()
        wait_for(lambda: client.get(f"/api/jobs/{job['id']}").json()["state"] == "running")
    port = served.port
    served.kill()
    again = start_workbench(tmp_path, port=port)
    try:
        assert again.secret == served.secret
        with again.client() as client:
            assert client.get(f"/api/jobs/{job['id']}").json()["state"] == "running"
            again_with = client.get(f"/api/jobs/{job['id']}/values").json()
            assert again_with == {"command": "embed", "values": values}
            assert client.post(f"/api/jobs/{job['id']}/stop").status_code == 200
            wait_for(lambda: client.get(f"/api/jobs/{job['id']}").json()["state"] == "stopped")
    finally:
        end_jobs(again)
        again.process.send_signal(signal.SIGTERM)
        again.process.wait(20)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--host", "0.0.0.0"], "--password is needed"),
        (["--password", "short"], "8 characters"),
        (["--host", "203.0.113.1", "--password", "long enough"], "choose another with --port"),
        (["--port", "70000"], "0 to 65535"),
        (["--jobs", "0"], "jobs must be"),
        (["--max-upload", "-1"], "max_upload"),
    ],
)
def test_options_that_are_refused(tmp_path: Path, options: list[str], line: str):
    command = [sys.executable, "-m", "unmask.cli", "serve", str(tmp_path / "r"), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2, done.stderr
    assert line.replace("max_upload", "max-upload") in done.stderr.replace(
        "max_upload", "max-upload"
    )
    assert done.stderr.count("\n") == 1


def test_the_password_opens_the_page(tmp_path: Path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--host", "0.0.0.0", "--password", "correct horse", "--port", str(port)]
    process, said = launch([str(tmp_path), *options], n_lines=3)
    try:
        assert "Open to the network" in said
        assert "secret" not in said
        wait_for(lambda: answers(port))
        raw = http.client.HTTPConnection("127.0.0.1", port, timeout=30)

        def ask(method: str, path: str, body: Any = None, **headers: str) -> Any:
            raw.request(method, path, body and json.dumps(body), headers)
            response = raw.getresponse()
            response.read()
            return response

        assert ask("GET", "/").headers["location"] == "/assets/login.html"
        assert ask("GET", "/assets/login.html").status == 200
        assert ask("GET", "/assets/main.js").status == 401
        assert ask("GET", "/api/runs").status == 401
        given = {"content-type": "application/json", "x-unmask": "1"}
        assert ask("POST", "/login", {"password": "wrong horse"}, **given).status == 401
        assert ask("POST", "/login", {"password": "correct horse"}, **given).status == 403
        time.sleep(1.1)
        signed_in = ask("POST", "/login", {"password": "correct horse"}, **given)
        assert signed_in.status == 200
        cookie = signed_in.headers["set-cookie"].partition(";")[0]
        assert ask("GET", "/api/runs", cookie=cookie).status == 200
        assert ask("GET", "/api/runs", cookie=cookie, host=f"evil.example:{port}").status == 421
        raw.close()
        assert process.poll() is None
    finally:
        process.terminate()
        process.wait(20)


def answers(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def test_a_run_that_is_removed_by_hand(served: Served, client: Any):
    folder = make_run(served.root, "gone")
    assert client.get("/api/run/series", params={"run": "gone"}).status_code == 200
    with client.stream("GET", "/api/stream?run=gone") as response:
        lines = response.iter_lines()
        assert next(lines).startswith("id: ")
        shutil.rmtree(folder)
        ids = [one["id"] for one in client.get("/api/runs").json()["runs"]]
        assert "gone" not in ids
        for path in ("/api/run", "/api/run/series", "/api/run/curve", "/api/run/report"):
            assert client.get(path, params={"run": "gone"}).status_code == 404
        assert client.delete("/api/run", params={"run": "gone"}).status_code == 404
        stopped = client.post("/api/run/stop", params={"run": "gone"})
        assert stopped.status_code in (400, 404)


def test_two_users_see_the_same_and_do_not_hinder_each_other(served: Served, client: Any):
    make_run(served.root, "shared-run")
    with served.client() as other:
        client.post("/api/run/tags", params={"run": "shared-run"}, json={"tags": ["mine"]})
        found = other.get("/api/run", params={"run": "shared-run"}).json()["run"]
        assert found["tags"] == ["mine"]
        items = [
            one.delete("/api/run", params={"run": "shared-run"}).status_code
            for one in (client, other)
        ]
        assert items == [200, 404]


@pytest.mark.thorough
def test_a_full_disk_is_told_and_leaves_nothing(tmp_path: Path):
    """The job of a disk that is full: files may have 100,000 bytes, and no more."""
    script = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000));"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "sys.argv = ['unmask', 'serve', sys.argv[1], '--port', '0'];"
        "from unmask.cli.main import main; main()"
    )
    process, said = launch([str(tmp_path)], command=[sys.executable, "-c", script])
    try:
        found = re.search(r"http://\S+", said)
        assert found is not None, said
        with Served(tmp_path, found[0], process).client() as client:
            wait_for(lambda: answers(int(found[0].split(":")[2].split("/")[0])))
            response = client.put("/api/files/large.txt", content=b"x" * 200_000)
            assert response.status_code in (400, 507)
            assert "\n" not in response.json()["error"]
            assert list((tmp_path / ".unmask" / "files").iterdir()) == []
            assert client.get("/api/runs").status_code == 200
    finally:
        process.terminate()
        process.wait(20)
