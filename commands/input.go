package commands

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strings"
)

// InputsTaken is the capability of a spoke that fetches the inputs of an order from its hub, and whose policy allows some.
const InputsTaken = "inputs"

// Limits of the inputs of a spawn. What a spoke takes together its policy says.
const (
	MaxInputs   = 64
	MaxBlobSize = 1 << 40
)

// A Blob is bytes that travel beside the messages, by their digest ("sha256-" and 64 hex digits).
type Blob struct {
	Digest string `json:"digest"`
	Size   int64  `json:"size"`
}

// An Input is what an agent finds in its directory, and that is too large for the order.
type Input struct {
	Kind string `json:"kind"`
	Blob
	Path string `json:"path,omitempty"` // below the directory; "" = it is the directory
	Tip  string `json:"tip,omitempty"`  // of a bundle: the commit that is checked out
	// Of a bundle: the last commit of Tip that the sender has, and what is left by the agent builds on; "" = Tip.
	Origin string `json:"origin,omitempty"`
	Exec   bool   `json:"exec,omitempty"` // of a file: it can be executed
}

// A Given is an entry of the file that tells an agent what it was given: a list of these in JSON.
type Given struct {
	Kind   string `json:"kind"`
	Path   string `json:"path"`             // absolute
	Commit string `json:"commit,omitempty"` // of git: what was sent
	Digest string `json:"digest,omitempty"` // of what was sent beside the order
	Size   int64  `json:"size,omitempty"`
}

// The kinds of an input.
const (
	InputGit  = "git"  // a bundle of git
	InputTar  = "tar"  // a directory
	InputFile = "file" // one file
)

// Base is the commit that what an agent leaves in this input has to build on.
func (in Input) Base() string { return cmp.Or(in.Origin, in.Tip) }

// Tree is the input of s that is the working tree of its agent, nil where there is none: what is left in that comes back.
func (s *Spawn) Tree() *Input {
	for i, in := range s.Inputs {
		if in.Kind == InputGit && in.Path == "" {
			return &s.Inputs[i]
		}
	}
	return nil
}

var (
	blobForm   = regexp.MustCompile(`^sha256-[0-9a-f]{64}$`)
	commitForm = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
)

// Validate checks b alone; the error is a [*Refused].
func (b Blob) Validate() error {
	switch {
	case !blobForm.MatchString(b.Digest):
		return Refuse(Validation, `%q is no digest: it is "sha256-" and 64 hex digits in lower case`, Clip(b.Digest))
	case b.Size < 0 || b.Size > MaxBlobSize:
		return Refuse(Validation, "a size of %d bytes is outside 0..%d", b.Size, int64(MaxBlobSize))
	}
	return nil
}

// InputBytes is how much is fetched for s at most: what several inputs share counts once.
func (s *Spawn) InputBytes() (total int64) {
	for _, b := range s.Blobs() {
		total += b.Size
	}
	return total
}

// Blobs are those of the inputs of s, each once.
func (s *Spawn) Blobs() (list []Blob) {
	for _, in := range s.Inputs {
		if !slices.Contains(list, in.Blob) {
			list = append(list, in.Blob)
		}
	}
	return list
}

// checkInputs checks which inputs s has, and that it can have them.
func (s *Spawn) checkInputs() error {
	switch {
	case len(s.Inputs) == 0:
		return nil
	case s.Runtime == RuntimeNoop:
		return Refuse(Validation, "runtime noop starts nothing, and takes no inputs")
	case s.Dir != "":
		return Refuse(Validation, "the order has inputs and the directory %s: inputs are put into a fresh directory only", Clip(s.Dir)).
			Hinting("leave out the directory, or the inputs")
	case len(s.Inputs) > MaxInputs:
		return Refuse(Validation, "%d inputs, limit %d", len(s.Inputs), MaxInputs).Hinting("put them into one directory, and give that")
	}
	sizes := map[string]int64{}
	for _, in := range s.Inputs {
		if err := in.check(); err != nil {
			return err
		}
		if size, known := sizes[in.Digest]; known && size != in.Size {
			return Refuse(Validation, "blob %s is said to have %d bytes, and %d", in.Digest, size, in.Size)
		}
		sizes[in.Digest] = in.Size
	}
	return s.checkInputPlaces()
}

func (in Input) check() error {
	if err := in.Validate(); err != nil {
		return err
	}
	directory := in.Kind == InputGit || in.Kind == InputTar
	switch {
	case !directory && in.Kind != InputFile:
		return Refuse(Validation, "an input of kind %q is not known; there are git, tar and file", Clip(in.Kind))
	case in.Kind == InputGit && !commitForm.MatchString(in.Tip):
		return Refuse(Validation, "the tip %q of an input is no commit: it is 40 or 64 hex digits in lower case", Clip(in.Tip))
	case in.Kind == InputGit && (!commitForm.MatchString(in.Base()) || len(in.Base()) != len(in.Tip)):
		return Refuse(Validation, "the origin %q of an input is no commit as its tip is one: it is %d hex digits in lower case", Clip(in.Origin), len(in.Tip))
	case in.Kind != InputGit && in.Tip+in.Origin != "":
		return Refuse(Validation, "an input of kind %s has no tip and no origin", in.Kind)
	case in.Exec && in.Kind != InputFile:
		return Refuse(Validation, "an input of kind %s cannot be executed", in.Kind)
	case in.Path == "" && directory:
		return nil
	}
	if err := CheckFilePath(in.Path); err != nil {
		return err
	}
	if inGit(in.Path) {
		return Refuse(BadPath, "the path %q of an input leads into what git keeps for itself", Clip(in.Path))
	}
	return nil
}

// inGit reports whether a path names, or leads through, a directory that git takes for its own, as it may be spelt on any disk.
func inGit(p string) bool {
	return slices.ContainsFunc(strings.Split(p, "/"), func(name string) bool { return strings.EqualFold(name, ".git") })
}

// checkInputPlaces wants a place for each input and file, and none in what is a file. The work directory itself is one's at most.
func (s *Spawn) checkInputPlaces() error {
	file := map[string]bool{} // by place; false = a directory, in which there may be others
	for _, f := range s.Files {
		if inGit(f.Path) && slices.ContainsFunc(s.Inputs, func(in Input) bool { return in.Kind == InputGit }) {
			return Refuse(BadPath, "the file %s leads into what git keeps for itself", Clip(f.Path))
		}
		file[f.Path] = true
	}
	for _, in := range s.Inputs {
		if _, taken := file[in.Path]; taken {
			return Refuse(BadPath, "two inputs or files are to be at %q", Clip(in.Path)).Hinting("give each a path of its own; one alone may be the directory itself")
		}
		file[in.Path] = in.Kind == InputFile
	}
	for p := range file {
		for dir := path.Dir(p); p != "" && dir != "."; dir = path.Dir(dir) {
			if file[dir] {
				return Refuse(BadPath, "%s is to be a file, and the directory of %s", Clip(dir), Clip(p))
			}
		}
	}
	return nil
}
