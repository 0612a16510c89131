package listener

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/spawnmesh/spawnmesh/commands"
	"github.com/spawnmesh/spawnmesh/internal/hostfile"
)

// lookEvery is how often the files of a certificate are looked at, where there are connections.
const lookEvery = time.Second

// A certificate is read again when one of its files has changed. One that cannot be read changes nothing.
type certificate struct {
	cert, key string // files
	log       *slog.Logger

	mu     sync.Mutex // guards what follows
	pair   *tls.Certificate
	stamp  string // of the files that were read last
	looked time.Time
}

// load reads the files for the first time.
func (c *certificate) load() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stamp, c.looked = c.stampNow(), time.Now()
	return c.read()
}

func (c *certificate) read() error {
	cert, err := readFile("--api-cert", c.cert, hostfile.Rule{})
	if err != nil {
		return err
	}
	key, err := readFile("--api-key", c.key, hostfile.Rule{Secret: true})
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return commands.Refuse(commands.Validation, "the certificate in %s and the key in %s cannot be used: %v", c.cert, c.key, err).Hinting("both are PEM, and belong together")
	}
	c.pair = &pair
	return nil
}

// readFile reads the file that a setting names.
func readFile(setting, path string, rule hostfile.Rule) ([]byte, error) {
	text, err := hostfile.Read(path, rule, 1<<20)
	if err != nil {
		return nil, unreadable(setting, err)
	}
	return text, nil
}

func unreadable(setting string, err error) error {
	return commands.Refuse(commands.Validation, "reading the file of %s: %v", setting, err).Hinting("name a file in PEM that this user can read")
}

// get is asked for each connection.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.looked) < lookEvery {
		return c.pair, nil
	}
	c.looked = time.Now()
	if now := c.stampNow(); now != c.stamp {
		c.stamp = now
		if err := c.read(); err != nil {
			c.log.Error("reading the certificate of the API again; the one before is used", "err", err)
		} else {
			c.log.Info("the certificate of the API was read again", "until", c.pair.Leaf.NotAfter)
		}
	}
	return c.pair, nil
}

// stampNow changes when one of the files does.
func (c *certificate) stampNow() (stamp string) {
	for _, path := range []string{c.cert, c.key} {
		if info, err := os.Stat(path); err == nil {
			stamp += fmt.Sprint(info.ModTime().UnixNano(), info.Size(), ";")
		}
	}
	return stamp
}
