package webhook

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// privateKey derives a key of a webhook from a secret of the hub. Both ids are random: no two are the same key, and none
// gives away another.
func privateKey(secret []byte, webhook, key string) (ed25519.PrivateKey, error) {
	seed, err := hkdf.Key(sha256.New, secret, nil, "spawnmesh webhook v1 "+webhook+" "+key, ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("deriving the key of a webhook: %w", err)
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// publicText is the public half of a key as Standard Webhooks has it.
func publicText(key ed25519.PrivateKey) string {
	return "whpk_" + base64.StdEncoding.EncodeToString(key.Public().(ed25519.PublicKey))
}

// signedText is what is signed of a message: no id has a dot.
func signedText(id string, at time.Time, body string) string {
	return id + "." + strconv.FormatInt(at.Unix(), 10) + "." + body
}

// signature is the header with the signatures of a message, one of each key.
func signature(keys []ed25519.PrivateKey, id string, at time.Time, body string) string {
	list := make([]string, len(keys))
	for i, k := range keys {
		list[i] = "v1a," + base64.StdEncoding.EncodeToString(ed25519.Sign(k, []byte(signedText(id, at, body))))
	}
	return strings.Join(list, " ")
}
