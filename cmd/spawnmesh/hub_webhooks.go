package main

import (
	"crypto/x509"
	"net/netip"

	"github.com/spf13/pflag"

	"github.com/spawnmesh/spawnmesh/hub/webhook"
	"github.com/spawnmesh/spawnmesh/internal/hostfile"
)

// A webhookChoice is where a hub sends webhooks besides receivers that everybody can reach and trusts.
type webhookChoice struct {
	allow []string
	ca    string
}

// add adds the flags.
func (c *webhookChoice) add(f *pflag.FlagSet) {
	f.StringSliceVar(&c.allow, "webhook-allow", nil, "webhooks may be sent to addresses in `CIDR`, as in 10.1.2.0/24, also where the public cannot reach them; may be given again")
	f.StringVar(&c.ca, "webhook-ca", "", "receivers of webhooks may have certificates of those in `FILE` (PEM), too")
}

// check has s send there, or says what is wrong with the choice.
func (c *webhookChoice) check(s *webhook.Sender) error {
	s.Allow, s.CA = nil, nil
	for _, text := range c.allow {
		p, err := netip.ParsePrefix(text)
		if err != nil || p != p.Masked() {
			return misuse("--webhook-allow %s is no network", text).Hinting("write it as in 10.1.2.0/24, with the first address of the network")
		}
		s.Allow = append(s.Allow, p)
	}
	if c.ca == "" {
		return nil
	}
	pem, err := hostfile.Read(c.ca, hostfile.Rule{}, 1<<20)
	if err != nil {
		return misuse("reading the certificates of --webhook-ca: %v", err)
	}
	if s.CA, err = x509.SystemCertPool(); err != nil {
		s.CA = x509.NewCertPool()
	}
	if !s.CA.AppendCertsFromPEM(pem) {
		return misuse("--webhook-ca %s has no certificate in PEM", c.ca)
	}
	return nil
}
