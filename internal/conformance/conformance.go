// Package conformance plays hub against a spoke program and tells which rules of
// docs/protocol.md it keeps.
//
// The program is any command that joins with the token in SPAWNMESH_TOKEN and keeps its
// keys and state in the directory SPAWNMESH_STATE. Each [Rule] is one sentence of the page
// and one small function. Rules that need the same spoke make a scene: a message server
// and keys as a hub has them, one fresh directory, and every message made by hand, so that
// it can be wrong, late or missing. The last scene is a hub as it is: the whole program
// with its database.
//
// Its tests are those of cmd/spawnmesh: the spokes of this program and of others are held to the page.
package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"
)

// A Rule is a promise of the protocol that the runner tries.
type Rule struct {
	Name    string `json:"rule"`
	Section string `json:"section"` // of docs/protocol.md
	Says    string `json:"says"`
	try     func(*trial) error
}

// The verdicts on a rule.
const (
	Kept     = "kept"
	Broken   = "broken"
	NotTried = "not tried"
)

// A Verdict says whether a spoke keeps a rule.
type Verdict struct {
	Rule    string `json:"rule"`
	Section string `json:"section"`
	Says    string `json:"says"`
	Verdict string `json:"verdict"`
	Why     string `json:"why,omitempty"` // what was expected and what came, or why it was not tried
	MS      int64  `json:"ms"`            // how long it took
}

// Options say what is tried on what.
type Options struct {
	Command  []string      // the spoke program and its arguments
	Rules    []string      // names of the rules to try; empty: all
	Patience time.Duration // how long an answer is waited for; default 30 s
	Say      func(Verdict) // is told of each verdict at once; nil: nobody
}

// A scene is a list of rules that are tried on one spoke, one behind the other.
type scene struct {
	name  string
	stage func(ctx context.Context, s *stage) error
	rules []Rule
}

func scenes() []scene {
	return []scene{
		{"tasks", byHand, taskRules()},
		{"malformed", byHand, malformedRules()},
		{"unconfirmed", byHand, unconfirmedRules()},
		{"faults", byHand, faultRules()},
		{"histories", byHand, historyRules()},
		{"latches", byHand, latchRules()},
		{"keys", byHand, keyRules()},
		{"hub", withHub, hubRules()},
	}
}

// Rules lists every rule in the order of the table.
func Rules() (all []Rule) {
	for _, s := range scenes() {
		all = append(all, s.rules...)
	}
	return all
}

// Has reports whether there is a rule with a name.
func Has(name string) bool {
	return slices.ContainsFunc(Rules(), func(r Rule) bool { return r.Name == name })
}

// atOnce is how many scenes run at a time.
const atOnce = 3

// Run tries the rules and returns a verdict on each of them, in the order of [Rules].
// An error says that the runner itself could not do its work.
func Run(ctx context.Context, o Options) ([]Verdict, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	o.Patience = cmp.Or(o.Patience, 30*time.Second)
	all := scenes()
	verdicts, errs := make([][]Verdict, len(all)), make([]error, len(all))
	var say sync.Mutex
	var work sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for i, sc := range all {
		work.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			verdicts[i], errs[i] = o.play(ctx, sc, &say)
		})
	}
	work.Wait()
	return slices.Concat(verdicts...), errors.Join(append(errs, ctx.Err())...)
}

func (o Options) check() error {
	if len(o.Command) == 0 {
		return errors.New("no spoke program was named")
	}
	for _, name := range o.Rules {
		if !Has(name) {
			return fmt.Errorf("there is no rule %q", name)
		}
	}
	return nil
}

// wanted are the rules of a scene that were asked for, and the first one of it, which
// has the spoke join.
func (o Options) wanted(sc scene) (list []Rule) {
	for i, r := range sc.rules {
		if len(o.Rules) == 0 || slices.Contains(o.Rules, r.Name) ||
			i == 0 && slices.ContainsFunc(sc.rules, func(r Rule) bool { return slices.Contains(o.Rules, r.Name) }) {
			list = append(list, r)
		}
	}
	return list
}

// play tries the rules of one scene. Where its first rule is broken there is no link, and
// the others are not tried.
func (o Options) play(ctx context.Context, sc scene, say *sync.Mutex) (list []Verdict, err error) {
	rules := o.wanted(sc)
	if len(rules) == 0 {
		return nil, nil
	}
	dir, err := os.MkdirTemp("", "spawnmesh-conformance-")
	if err != nil {
		return nil, fmt.Errorf("making a directory for the scene %s: %w", sc.name, err)
	}
	if err := os.Chmod(dir, 0o711); err != nil { // a spoke's database server may be another user
		return nil, fmt.Errorf("opening the directory of the scene %s: %w", sc.name, err)
	}
	s := &stage{options: o, dir: dir, rules: rules, told: func(v Verdict) {
		list = append(list, v)
		say.Lock()
		defer say.Unlock()
		if o.Say != nil {
			o.Say(v)
		}
	}}
	return list, errors.Join(sc.stage(ctx, s), os.RemoveAll(dir))
}

// A stage is where the rules of a scene are tried.
type stage struct {
	options Options
	dir     string
	rules   []Rule
	told    func(Verdict)
	missing string // why no further rule can be tried
}

// try tries the rules one behind the other.
func (s *stage) try(t *trial) {
	for i, r := range s.rules {
		v := Verdict{Rule: r.Name, Section: r.Section, Says: r.Says, Verdict: NotTried, Why: s.missing}
		if s.missing == "" && t.ctx.Err() != nil {
			v.Why = "the runner was ended"
		} else if s.missing == "" {
			begun := time.Now()
			v.Verdict, v.Why = judge(r.try(t))
			v.MS = time.Since(begun).Milliseconds()
		}
		if i == 0 && v.Verdict == Broken {
			s.missing = "the spoke is not linked: see " + r.Name
		}
		s.told(v)
	}
}

func judge(err error) (verdict, why string) {
	var not *notTried
	switch {
	case err == nil:
		return Kept, ""
	case errors.As(err, &not):
		return NotTried, not.why
	}
	return Broken, err.Error()
}

// notTried is the error of a rule that could not be tried on this spoke.
type notTried struct{ why string }

func (n *notTried) Error() string { return n.why }
