package commands

import (
	"encoding/json"
	"path"
	"slices"
	"strings"
)

// Limits of what an agent says of its own end, in bytes where nothing else is said.
const (
	MaxSummary      = 4 << 10
	MaxData         = 64 << 10
	MaxArtifacts    = 64
	MaxArtifactName = 128
	MaxArtifactPath = 512
)

// What an agent may say of its own end.
const (
	SaidDone   = "done"
	SaidFailed = "failed"
)

// A Report is what an agent has said of its own end. How it ended is what its supervisor saw.
type Report struct {
	As   string `json:"as"` // [SaidDone] or [SaidFailed]
	Text string `json:"text,omitempty"`
	Cut  bool   `json:"cut,omitempty"` // it left data or artifacts, too, which did not fit into the message
	// Final is of a failure: the agent has said that it is of no use to try again, and no attempt follows.
	Final bool `json:"final,omitempty"`
}

// An Artifact points to a file that an agent has left on the host of its spoke.
type Artifact struct {
	Name   string `json:"name"`
	Path   string `json:"path"` // inside of its working directory
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"` // when the agent named it
}

// A Word is all that an agent has said of its own end.
type Word struct {
	Report
	Data      string     `json:"data,omitempty"` // JSON, as it wrote it
	Artifacts []Artifact `json:"artifacts,omitempty"`
}

// Validate checks w; the error is a [*Refused].
func (w *Word) Validate() error {
	return (&Result{Reported: &w.Report, Data: w.Data, Artifacts: w.Artifacts}).checkWord()
}

// checkWord checks what the agent itself has said.
func (b *Result) checkWord() error {
	if r := b.Reported; r != nil {
		if r.As != SaidDone && r.As != SaidFailed {
			return Refuse(Validation, "%q is not what an agent says of its end", Clip(r.As))
		}
		if err := checkText("what the agent says of its end", r.Text, MaxSummary); err != nil {
			return err
		}
	}
	if err := checkText("the data of the agent", b.Data, MaxData); err != nil {
		return err
	}
	if b.Data != "" && !json.Valid([]byte(b.Data)) {
		return Refuse(Validation, "the data of the agent is not JSON")
	}
	if len(b.Artifacts) > MaxArtifacts {
		return Refuse(Validation, "%d artifacts are named, limit %d", len(b.Artifacts), MaxArtifacts)
	}
	var names []string
	for _, a := range b.Artifacts {
		if err := a.check(); err != nil {
			return err
		}
		if slices.Contains(names, a.Name) {
			return Refuse(Validation, "two artifacts have the name %q", Clip(a.Name))
		}
		names = append(names, a.Name)
	}
	return nil
}

// CheckNames refuses what an artifact is not called, or where it is not; the error is a [*Refused].
func (a Artifact) CheckNames() error {
	if err := checkLine("the name of an artifact", a.Name, MaxArtifactName); err != nil {
		return err
	}
	if err := checkLine("the path of an artifact", a.Path, MaxArtifactPath); err != nil {
		return err
	}
	if a.Name == "" || a.Path == "" || path.IsAbs(a.Path) || path.Clean(a.Path) != a.Path || a.Path == ".." || strings.HasPrefix(a.Path, "../") {
		return Refuse(Validation, "an artifact has a name, and a path inside of the working directory in its shortest form, not %q", Clip(a.Path))
	}
	return nil
}

func (a Artifact) check() error {
	if err := a.CheckNames(); err != nil {
		return err
	}
	if a.Size < 0 || a.Size > maxNumber || len(a.SHA256) != 64 || !digestForm.MatchString(a.SHA256) {
		return Refuse(Validation, "artifact %q has no size or no digest", Clip(a.Name))
	}
	return nil
}

// NoRetry reports whether the agent has said that its failure is of no use to retry.
func (r *Report) NoRetry() bool { return r != nil && r.Final && r.As == SaidFailed }

// Contradicts says where what the agent has said is not what its supervisor saw; "" where it is.
func (b *Result) Contradicts() string {
	r, well := b.Reported, b.State == Completed || b.Delivered()
	switch {
	case r == nil:
	case r.As == SaidDone && !well:
		return "it said that it is done, and has not completed"
	case r.As == SaidFailed && well:
		return "it said that it has failed, and ended with exit code 0"
	}
	return ""
}
