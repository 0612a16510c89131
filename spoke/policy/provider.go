package policy

import (
	"regexp"
	"slices"
)

// A Provider says whose limits the agents of an entry meet, as those of a subscription to a model.
type Provider struct {
	Account       string   `yaml:"account,omitempty" json:"account,omitempty"`               // when one of its agents meets a limit, the others wait too; "" = of none
	LimitPatterns []string `yaml:"limit_patterns,omitempty" json:"limit_patterns,omitempty"` // RE2; an agent that fails with one of them in its last output has met a limit
}

// Bounds of a provider.
const (
	maxPatterns     = 32
	maxPatternBytes = 500
)

var accountForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

func (v Provider) empty() bool { return v.Account == "" && len(v.LimitPatterns) == 0 }

// check looks at the provider of the entry at a place of the policy.
func (v Provider) check(at string) *problem {
	if v.Account != "" && !accountForm.MatchString(v.Account) {
		return wrong(at+".account", "account %q is not 1 to 63 lower-case letters, digits and hyphens", v.Account)
	}
	if len(v.LimitPatterns) > maxPatterns {
		return wrong(at+".limit_patterns", "limit_patterns has %d entries; write at most %d", len(v.LimitPatterns), maxPatterns)
	}
	for _, text := range v.LimitPatterns {
		if text == "" || len(text) > maxPatternBytes {
			return wrong(at+".limit_patterns", "limit_patterns has an entry of %d bytes; write 1 to %d", len(text), maxPatternBytes)
		}
		if _, err := regexp.Compile(text); err != nil {
			return wrong(at+".limit_patterns", "limit_patterns: %v; write a regular expression of RE2", err)
		}
	}
	return nil
}

// MetLimit reports whether the last output of an agent that failed says that it has met a limit. Of worker acp it is the reason that it has told:
// its output is what its coding agent writes, which may be of limits. Where no entry names one it looks up no program. An error is a fault of this
// host that keeps it from being said which entry allows argv.
func (p *Policy) MetLimit(argv []string, reason string, output ...string) (bool, error) {
	if !slices.ContainsFunc(p.entries(), func(c Command) bool { return len(c.LimitPatterns) > 0 }) {
		return false, nil
	}
	c, ok, err := p.match(argv)
	if !ok {
		return false, err
	}
	if runs := c.argv(argv); len(runs) > 2 && runs[1] == "worker" && runs[2] == "acp" {
		output = []string{reason}
	}
	return slices.ContainsFunc(c.LimitPatterns, func(text string) bool {
		return slices.ContainsFunc(output, regexp.MustCompile(text).MatchString)
	}), err
}
