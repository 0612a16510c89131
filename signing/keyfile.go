package signing

import (
	"bytes"
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/spawnmesh/spawnmesh/internal/fsync"
	"github.com/spawnmesh/spawnmesh/internal/hostfile"
)

// Keys are the private keys of one instance. They are four different keys on
// purpose: the NATS server chooses what the link key signs at login, so that
// key must never be able to sign a message.
type Keys struct {
	Identity  *Signer          // names the instance; signs handshakes and key sets
	Signing   *Signer          // signs messages
	Sealing   *ecdh.PrivateKey // X25519; opens what is encrypted to this instance
	Decrypter *Decrypter       // does so
	LinkSeed  []byte           // 32-byte seed of the NATS nkey
	Ring      *Ring            // finds the signing keys that came after Signing
}

// InstanceID returns the id that the identity key gives.
func (k Keys) InstanceID() InstanceID { return InstanceIDOf(k.Identity.Public()) }

// A KeyFileError says what is wrong with a key file and what to do about it.
type KeyFileError struct {
	Path, Why, Hint string
}

const missing = "is missing"

// ErrMissing is what [Ring.Signer] returns of a key that has no file.
var ErrMissing = &KeyFileError{Why: missing}

// Is reports whether target is [ErrMissing] and e is about a file that is missing.
func (e *KeyFileError) Is(target error) bool { return target == ErrMissing && e.Why == missing }

// Error gives path, reason and hint.
func (e *KeyFileError) Error() string {
	return fmt.Sprintf("key file %s %s; %s", e.Path, e.Why, e.Hint)
}

// ErrNoKeys is returned by [LoadKeys] when none of the key files exists.
var ErrNoKeys = errors.New("the instance has no keys yet")

// Names of the key files below the key directory.
const (
	identityFile = "identity" // OpenSSH private key: ssh-keygen -l -f reads it
	signingFile  = "signing.json"
	sealingFile  = "sealing.json"
	linkFile     = "link.json"
)

const maxKeyFile = 16 << 10

// CreateKeys makes the four keys of a new instance in dir, which must hold none
// of them. The directory appears whole or not at all: a crash in the middle
// leaves nothing that [LoadKeys] would take.
func CreateKeys(dir string) (Keys, error) {
	if _, err := LoadKeys(dir); !errors.Is(err, ErrNoKeys) {
		if err == nil {
			err = fmt.Errorf("%s already holds keys", dir)
		}
		return Keys{}, err
	}
	tmp := fmt.Sprintf("%s.new-%d", dir, os.Getpid())
	if err := os.MkdirAll(tmp, 0o700); err != nil {
		return Keys{}, fmt.Errorf("creating the key directory: %w", err)
	}
	defer os.RemoveAll(tmp)
	for _, name := range []string{identityFile, signingFile, sealingFile, linkFile} {
		if err := writeKey(filepath.Join(tmp, name), name); err != nil {
			return Keys{}, err
		}
	}
	// An empty directory made by somebody else is no loss; a full one stops the rename.
	_ = os.Remove(dir)
	if err := os.Rename(tmp, dir); err != nil {
		return Keys{}, fmt.Errorf("putting the key directory in place: %w", err)
	}
	if err := fsync.Dir(filepath.Dir(dir)); err != nil {
		return Keys{}, err
	}
	return LoadKeys(dir)
}

// LoadKeys reads the keys of an instance. It returns [ErrNoKeys] when dir holds
// none, and a [*KeyFileError] when one is missing, unsafe or damaged: keys are
// never made anew in place of lost ones.
func LoadKeys(dir string) (Keys, error) {
	seeds := map[string][]byte{}
	missing := 0
	for _, name := range []string{identityFile, signingFile, sealingFile, linkFile} {
		seed, err := readKey(filepath.Join(dir, name), name)
		if errors.Is(err, fs.ErrNotExist) {
			missing++
			continue
		}
		if err != nil {
			return Keys{}, err
		}
		seeds[name] = seed
	}
	if missing == 4 {
		return Keys{}, ErrNoKeys
	}
	if missing > 0 {
		return Keys{}, &KeyFileError{dir, "lacks some of its keys", "restore them from a backup, or move the directory away and join again as a new instance"}
	}
	return keysOf(dir, seeds)
}

func keysOf(dir string, seeds map[string][]byte) (Keys, error) {
	identity, err := NewSigner(seeds[identityFile])
	if err != nil {
		return Keys{}, err
	}
	signer, err := NewSigner(seeds[signingFile])
	if err != nil {
		return Keys{}, err
	}
	sealing, err := ecdh.X25519().NewPrivateKey(seeds[sealingFile])
	if err != nil {
		return Keys{}, fmt.Errorf("reading the sealing key: %w", err)
	}
	decrypter, err := NewDecrypter(sealing)
	if err != nil {
		return Keys{}, err
	}
	return Keys{identity, signer, sealing, decrypter, seeds[linkFile], NewRing(dir, identity, signer)}, nil
}

type keyFile struct {
	V    int    `json:"v"`
	Use  string `json:"use"`
	Seed string `json:"seed"`
}

func writeKey(path, name string) error {
	return writeSeed(path, name, newSeed())
}

// newSeed draws the seed of a key. What people type of the id of the key does not begin like a flag.
func newSeed() []byte {
	for seed := make([]byte, ed25519.SeedSize); ; {
		rand.Read(seed)
		id := KeyIDOf(ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey))
		if !strings.HasPrefix(string(id), keyPrefix+"-") {
			return seed
		}
	}
}

// writeSeed writes a key file, which is stored when it returns.
func writeSeed(path, name string, seed []byte) error {
	var content []byte
	var err error
	if name == identityFile {
		var block *pem.Block
		if block, err = ssh.MarshalPrivateKey(ed25519.NewKeyFromSeed(seed), "spawnmesh identity"); err == nil {
			content = pem.EncodeToMemory(block)
		}
	} else {
		content, err = json.Marshal(keyFile{1, useOf(name), base64.StdEncoding.EncodeToString(seed)})
	}
	if err != nil {
		return fmt.Errorf("encoding key file %s: %w", path, err)
	}
	if err := fsync.Replace(path, content, 0o600); err != nil {
		return fmt.Errorf("writing a key file: %w", err)
	}
	return nil
}

func useOf(name string) string { return name[:len(name)-len(filepath.Ext(name))] }

// readKey returns the 32-byte seed in path, after checking that nobody but the
// owner could have read, written or replaced it.
func readKey(path, name string) ([]byte, error) {
	f, err := hostfile.Open(path, hostfile.Rule{Secret: true, NoLink: true})
	if unsafe, ok := errors.AsType[*hostfile.UnsafeError](err); ok {
		return nil, unsafeKey(path, unsafe)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err != nil {
		return nil, fmt.Errorf("reading key file %s: %w", path, err)
	}
	seed, why := parseKey(content, name)
	if why != "" {
		return nil, &KeyFileError{path, why, "restore it from a backup; it is never made anew by itself"}
	}
	return seed, nil
}

func unsafeKey(path string, e *hostfile.UnsafeError) *KeyFileError {
	if !e.Way {
		return &KeyFileError{e.Path, e.Why, e.Hint}
	}
	return &KeyFileError{path, "could be replaced by others: " + e.Path + " " + e.Why, e.Hint}
}

// parseKey returns the seed in content, or what is wrong with it.
func parseKey(content []byte, name string) (seed []byte, why string) {
	if len(content) == 0 {
		return nil, "is empty"
	}
	if len(content) > maxKeyFile {
		return nil, "is too large for a key"
	}
	if name == identityFile {
		return parseIdentity(content)
	}
	var k keyFile
	dec := json.NewDecoder(bytes.NewReader(content))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&k); err != nil {
		return nil, "is damaged"
	}
	seed, ok := strictBase64([]byte(k.Seed), 32)
	if k.V != 1 || k.Use != useOf(name) || !ok || len(seed) != 32 {
		return nil, "does not hold a " + useOf(name) + " key"
	}
	return seed, ""
}

func parseIdentity(content []byte) (seed []byte, why string) {
	raw, err := ssh.ParseRawPrivateKey(content)
	if _, locked := errors.AsType[*ssh.PassphraseMissingError](err); locked {
		return nil, "is protected by a passphrase, which this version cannot ask for"
	}
	if err != nil {
		return nil, "is damaged"
	}
	priv, ok := raw.(*ed25519.PrivateKey)
	if !ok {
		return nil, "does not hold an Ed25519 key"
	}
	return priv.Seed(), ""
}
