"""A DNS server of the lab's own: one zone, which takes updates (RFC 2136) that its key signs (TSIG), over UDP and TCP.

It is no resolver, and says whose it is in the zone's SOA record.
"""

from __future__ import annotations

import base64
import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdataclass
import dns.rdatatype
import dns.rrset
import dns.tsig
import dns.update

_LIFE_S = 60


@dataclass
class Zone:
    """The zone, its key, and what was asked of it."""

    name: dns.name.Name
    key_name: dns.name.Name
    key: bytes
    records: dict[dns.name.Name, set[str]] = field(default_factory=dict)
    """Texts by name."""
    updates: list[tuple[str, dns.name.Name]] = field(default_factory=list)
    """`add` or `remove` with the name, of updates that were taken."""
    refused: int = 0
    """Updates without the key, or signed by another."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def key_text(self) -> str:
        """The key as the configuration of a DNS server has it."""
        return base64.b64encode(self.key).decode()

    def answer(self, wire: bytes) -> bytes | None:
        """The answer to a message; None for what is none."""
        keyring = {self.key_name: dns.tsig.Key(self.key_name, self.key, dns.tsig.HMAC_SHA256)}
        try:
            message = dns.message.from_wire(wire, keyring=keyring)
        except (dns.tsig.BadSignature, dns.message.UnknownTSIGKey, dns.tsig.PeerError):
            return self._refusal(wire)
        except dns.exception.DNSException:
            return None
        with self._lock:
            if isinstance(message, dns.update.UpdateMessage):
                return self._update(message)
            return self._query(message)

    def _refusal(self, wire: bytes) -> bytes:
        """Without a signature: the key is not the zone's."""
        self.refused += 1
        # The same header with QR and the code NOTAUTH, and no sections.
        return wire[:2] + struct.pack("!H", dns.flags.QR | (wire[2] & 0x78) << 8 | dns.rcode.NOTAUTH) + bytes(8)

    def _update(self, message: dns.update.UpdateMessage) -> bytes:
        answer = dns.message.make_response(message)
        if not message.had_tsig:
            self.refused += 1
            answer.set_rcode(dns.rcode.REFUSED)
            return answer.to_wire()
        for change in message.update:
            texts = {b"".join(entry.strings).decode() for entry in change}
            known = self.records.setdefault(change.name, set())
            if change.deleting is None:
                known |= texts
                self.updates.append(("add", change.name))
            else:
                known -= texts or set(known)
                self.updates.append(("remove", change.name))
        return answer.to_wire()

    def _query(self, message: dns.message.Message) -> bytes:
        answer = dns.message.make_response(message)
        answer.flags |= dns.flags.AA
        question = message.question[0]
        if not question.name.is_subdomain(self.name):
            answer.set_rcode(dns.rcode.REFUSED)
            return answer.to_wire()
        texts = self.records.get(question.name, set())
        if question.rdtype == dns.rdatatype.TXT and texts:
            quoted = [f'"{text}"' for text in sorted(texts)]
            answer.answer.append(dns.rrset.from_text_list(question.name, _LIFE_S, "IN", "TXT", quoted))
        elif question.rdtype == dns.rdatatype.SOA and question.name == self.name:
            answer.answer.append(self._soa())
        else:
            if not texts and question.name != self.name:
                answer.set_rcode(dns.rcode.NXDOMAIN)
            answer.authority.append(self._soa())
        return answer.to_wire()

    def _soa(self) -> dns.rrset.RRset:
        start = f"dns-server-of-the-lab.{self.name} hostmaster.{self.name} 1 60 60 60 1"
        return dns.rrset.from_text(self.name, _LIFE_S, "IN", "SOA", start)


@contextmanager
def serving(zone: Zone, address: str, port: int) -> Iterator[None]:
    """The zone is answered for at this address, until the block ends."""

    class Datagram(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            data, answerer = self.request
            if (answer := zone.answer(data)) is not None:
                answerer.sendto(answer, self.client_address)

    class Stream(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while len(size := self.rfile.read(2)) == 2:
                answer = zone.answer(self.rfile.read(struct.unpack("!H", size)[0]))
                if answer is None:
                    return
                self.wfile.write(struct.pack("!H", len(answer)) + answer)

    class Tcp(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True

    servers = (socketserver.ThreadingUDPServer((address, port), Datagram), Tcp((address, port), Stream))
    threads = [threading.Thread(target=server.serve_forever, daemon=True) for server in servers]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for server, thread in zip(servers, threads, strict=True):
            server.shutdown()
            server.server_close()
            thread.join()
