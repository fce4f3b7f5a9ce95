package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
)

// A client moves within these, and another client is hardly ever in the same one. Inside of a site each node's pods and
// each floor may have a /24, so that one program of many pods would seem to be everywhere.
const networkOf4, networkOfPrivate4, networkOf6 = 24, 16, 48

// networks names the network that a request comes from, for the ledger's count of the networks of a key. A name is only
// good for that: without the salt no address can be tried against it, and another key's name of the same network is
// another one.
type networks struct{ salt []byte }

// name is empty for what is no address.
func (n *networks) name(client, address string) string {
	parsed, err := netip.ParseAddr(address)
	if err != nil {
		return ""
	}
	parsed = parsed.Unmap()
	bits := networkOf6
	if parsed.Is4() {
		bits = networkOf4
		if parsed.IsPrivate() {
			bits = networkOfPrivate4
		}
	}
	network, err := parsed.WithZone("").Prefix(bits)
	if err != nil {
		return ""
	}
	mac := hmac.New(sha256.New, n.salt)
	mac.Write([]byte("network\x00" + client + "\x00" + network.String()))
	return hex.EncodeToString(mac.Sum(nil)[:8])
}
