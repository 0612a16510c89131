//go:build ignore

// Command receiver takes webhooks: it verifies what it is told, and prints each event once.
//
//	go run receiver.go whpk_... 127.0.0.1:8443 cert.pem key.pem
package main

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// verify refuses what is not signed by the key, or was signed long ago.
func verify(key ed25519.PublicKey, h http.Header, body []byte) error {
	id, at := h.Get("webhook-id"), h.Get("webhook-timestamp")
	sent, err := strconv.ParseInt(at, 10, 64)
	if err != nil || time.Since(time.Unix(sent, 0)).Abs() > 5*time.Minute {
		return errors.New("the time of it is not now")
	}
	for s := range strings.FieldsSeq(h.Get("webhook-signature")) {
		signature, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(s, "v1a,"))
		if err == nil && ed25519.Verify(key, []byte(id+"."+at+"."+string(body)), signature) {
			return nil
		}
	}
	return errors.New("no signature is by the key")
}

func main() {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(os.Args[1], "whpk_"))
	if err != nil || len(key) != ed25519.PublicKeySize {
		log.Fatal("the key is like whpk_...")
	}
	var seen sync.Map // a program that is started again keeps them elsewhere
	http.HandleFunc("POST /in", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(io.LimitReader(r.Body, 20<<10))
		if err == nil {
			err = verify(key, r.Header, body)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if _, again := seen.LoadOrStore(r.Header.Get("webhook-id"), true); !again {
			fmt.Println(string(body))
		}
	})
	log.Fatal(http.ListenAndServeTLS(os.Args[2], os.Args[3], os.Args[4], nil))
}
