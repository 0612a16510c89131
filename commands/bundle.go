package commands

// MaxKept bounds what a result says of files that are in no bundle.
const MaxKept = 1024

// A Bundle is what the attempts of a task have left in its working tree, as commits that git can fetch: those behind Base up to
// Tip.
type Bundle struct {
	Blob
	Base    string `json:"base"`
	Tip     string `json:"tip"`
	Commits int    `json:"commits"`
	Left    bool   `json:"left,omitempty"` // the last of them is the spoke's: it has what the agent left uncommitted
}

// check checks b alone; the error is a [*Refused].
func (b *Bundle) check() error {
	switch {
	case b == nil:
		return nil
	case !commitForm.MatchString(b.Base) || !commitForm.MatchString(b.Tip) || len(b.Base) != len(b.Tip) || b.Base == b.Tip:
		return Refuse(Validation, "a bundle goes from one commit to another, of 40 or 64 hex digits in lower case each")
	case b.Commits < 1 || b.Commits > maxNumber:
		return Refuse(Validation, "a bundle has %d commits", b.Commits)
	}
	return b.Validate()
}

// Answers checks that b is of the work that an order was for: it builds on the commit that its sender has. Whoever shows what an agent has
// changed, or takes it, demands this first: a spoke that chose the commit could have its own shown as what was there before. The error is a
// [*Refused].
func (b *Bundle) Answers(s *Spawn) error {
	in := s.Tree()
	switch {
	case in == nil:
		return Refuse(Conflict, "the order had no working tree of git, and the result says that commits were left in it").Hinting("ask the host of the spoke")
	case b.Base != in.Base():
		return Refuse(Conflict, "the order was for work on commit %s, and the result is work on %s", in.Base(), Clip(b.Base)).Hinting("do not take it; ask the host of the spoke")
	}
	return nil
}

// checkWork checks what a result says of the files that the agent has left.
func (b *Result) checkWork() error {
	if err := b.Bundle.check(); err != nil {
		return err
	}
	return checkLine("what keeps files of the agent", b.Kept, MaxKept)
}
