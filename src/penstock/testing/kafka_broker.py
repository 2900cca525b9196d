"""A real Kafka broker for tests and demonstrations: one node, on loopback, bounded in time.

The broker's jars are resolved by name and version through Maven, once, and kept in the user's
cache folder. Where neither the jars nor Maven and Java are there, `missing` says so.

1. `Broker.start` formats a folder for a single node that is broker and controller (KRaft), starts
   it on free ports, and waits until it answers.
2. `stop` ends it as an operator would, `kill` as a crash would; `start` goes on with its data on
   the same ports.
3. Whatever happens to this process, the broker ends after `lifetime_s` at the latest.
"""

from __future__ import annotations

import base64
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from penstock.common.errors import PenstockError
from penstock.testing.maven import Artifact, NotResolved, folder_of, jars

#: The broker, by group, name and version.
KAFKA: Artifact = ("org.apache.kafka", "kafka_2.13", "4.1.0")

#: Spark's connector and what it needs besides Spark: the newest that could be had, which runs on
#: Spark 4.3.
CONNECTOR: tuple[Artifact, ...] = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.commons", "commons-pool2", "2.12.1"),
    ("org.apache.kafka", "kafka-clients", "3.9.1"),
)

#: Seconds that a broker may take until it answers: a busy machine needs a good part of them.
START_S = 180.0

#: Who may log in at the listener that asks for a name and a password.
USER, PASSWORD = "penstock", "a-secret-of-the-tests"

_PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl},\\
  CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,\\
  SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
inter.broker.listener.name=PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config=\\
  org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}="{password}";
log.dirs={logs}
auto.create.topics.enable=false
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
controlled.shutdown.enable=false
"""

#: A listener where clients see a certificate of the broker's before they log in.
_TLS = """listeners=PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{sasl},\\
  SASL_SSL://127.0.0.1:{tls},CONTROLLER://127.0.0.1:{controller}
listener.name.sasl_ssl.ssl.keystore.type=PKCS12
listener.name.sasl_ssl.ssl.keystore.location={keys}
listener.name.sasl_ssl.ssl.keystore.password={password}
listener.name.sasl_ssl.plain.sasl.jaas.config=\\
  org.apache.kafka.common.security.plain.PlainLoginModule required user_{user}="{password}";
"""


class BrokerFailed(PenstockError):
    """The broker did not start; says why."""


def missing() -> str:
    """Say why no broker can be started here; empty if one can. Gets its jars if they can be had."""
    if find_spec("confluent_kafka") is None:
        return "the client of Kafka is not installed: pip install 'penstock[kafka]'"
    if shutil.which("java") is None:
        return "a Kafka broker needs Java, which is not on the PATH"
    try:
        jars(KAFKA)
    except NotResolved as error:
        return f"the jars of Kafka are not in {folder_of(KAFKA)} and could not be had: {error}"
    return ""


@dataclass
class Broker:
    """One Kafka node in a folder of its own.

    Parameters
    ----------
    folder : Path
        For settings and data.
    lifetime_s : float
        Seconds after which it ends, whatever happens.
    tls : bool
        Whether it has a listener for TLS, with a certificate that is made by Java's keytool.

    Attributes
    ----------
    servers, sasl_servers, tls_servers : str
        Address for clients, for those that log in as `USER`, and for those that do so over TLS.
    certificate : Path
        What those over TLS are to trust.
    """

    folder: Path
    lifetime_s: float = 1800.0
    tls: bool = False
    servers: str = ""
    sasl_servers: str = ""
    tls_servers: str = ""
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start(self, timeout_s: float = START_S) -> Broker:
        """Start it, with the data that it has, and wait until it answers."""
        settings = self.folder / "server.properties"
        if not self.servers:
            self._prepare(settings)
        command = [*_java("-Xmx512m"), "kafka.Kafka", str(settings)]
        with (self.folder / "output.txt").open("ab") as output:
            self._process = subprocess.Popen(
                ["timeout", "-k", "5", f"{self.lifetime_s:.0f}", *command],
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._await(timeout_s)
        return self

    def _prepare(self, settings: Path) -> None:
        self.folder.mkdir(exist_ok=True)
        plain, sasl, tls, controller = _free_ports(4)
        self.servers, self.sasl_servers = f"127.0.0.1:{plain}", f"127.0.0.1:{sasl}"
        told: dict[str, Any] = {"plain": plain, "sasl": sasl, "tls": tls, "controller": controller}
        told |= {"user": USER, "password": PASSWORD, "keys": self.folder / "keys.p12"}
        text = _PROPERTIES.format(logs=self.folder / "data", **told)
        if self.tls:
            self.tls_servers = f"127.0.0.1:{tls}"
            self._certify(told["keys"])
            text += _TLS.format(**told)
        settings.write_text(text)
        number = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        tool = [*_java("-Xmx128m"), "kafka.tools.StorageTool", "format"]
        ran = subprocess.run(
            [*tool, "--cluster-id", number.replace("-", "A"), "-c", str(settings)],
            capture_output=True,
            text=True,
            timeout=START_S,
        )
        if ran.returncode != 0:
            raise BrokerFailed(f"Kafka could not format its folder: {ran.stdout}{ran.stderr}")

    @property
    def certificate(self) -> Path:
        """The certificate of the listener for TLS."""
        return self.folder / "certificate.pem"

    def _certify(self, keys: Path) -> None:
        store = ["-keystore", str(keys), "-storepass", PASSWORD, "-alias", "broker"]
        made = ["-genkeypair", "-keyalg", "RSA", "-storetype", "PKCS12", "-dname", "CN=broker"]
        shown = ["-exportcert", "-rfc", "-file", str(self.certificate)]
        for words in ([*made, "-validity", "2", "-ext", "SAN=ip:127.0.0.1"], shown):
            command = ["keytool", *words, *store]
            ran = subprocess.run(command, capture_output=True, text=True, timeout=START_S)
            if ran.returncode != 0:
                raise BrokerFailed(f"keytool made no certificate: {ran.stdout}{ran.stderr}")

    def _await(self, timeout_s: float) -> None:
        from confluent_kafka.admin import AdminClient

        give_up = time.monotonic() + timeout_s
        client = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        while time.monotonic() < give_up:
            if self._process is None or self._process.poll() is not None:
                break
            try:
                if client.list_topics(timeout=2).brokers:
                    return
            except Exception:  # noqa: BLE001, S112 - it is not there yet, whatever the client says
                continue
        said = (self.folder / "output.txt").read_text()[-1500:]
        self.kill()
        raise BrokerFailed(f"Kafka did not answer within {timeout_s:g} s: {said}")

    def stop(self, timeout_s: float = 30.0) -> None:
        """Let it end by itself."""
        self._end(signal.SIGTERM, timeout_s)

    def kill(self) -> None:
        """End it at once, as a crash does."""
        self._end(signal.SIGKILL, 10.0)

    def _end(self, by: signal.Signals, timeout_s: float) -> None:
        process, self._process = self._process, None
        if process is None or process.poll() is not None:
            return
        os.killpg(process.pid, by)
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10.0)

    def create(self, topic: str, partitions: int = 1, **config: str) -> None:
        """Create a topic."""
        from confluent_kafka.cimpl import NewTopic

        made = NewTopic(topic, partitions, 1, config=config)
        # The client must live until the broker has answered.
        client = self.admin
        client.create_topics([made])[topic].result(30)

    @property
    def admin(self) -> Any:
        """A client that creates and changes topics."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})


@contextmanager
def broker(lifetime_s: float = 1800.0, *, tls: bool = False) -> Iterator[Broker]:
    """Start a broker in a folder that is removed afterwards; on other ports if it fails at first.

    Ports that were free when they were chosen may be taken by the time when it listens.
    """
    with tempfile.TemporaryDirectory(prefix="penstock-kafka-") as folder:
        made = Broker(Path(folder, "first"), lifetime_s, tls)
        try:
            try:
                made.start()
            except BrokerFailed:
                made = Broker(Path(folder, "second"), lifetime_s, tls)
                made.start()
            yield made
        finally:
            made.kill()


def _java(memory: str) -> list[str]:
    # Quick to start: what it does here is over before the best compiler has paid.
    quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"]
    return ["java", memory, *quick, "-cp", f"{jars(KAFKA)}/*"]


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        ports = []
        for _ in range(count):
            listener = held.enter_context(socket.socket())
            listener.bind(("127.0.0.1", 0))
            ports.append(int(listener.getsockname()[1]))
        return ports
