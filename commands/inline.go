package commands

import (
	"encoding/base64"
	"path"
	"path/filepath"
	"strings"
)

// InlineFiles is the capability of a spoke that takes orders with files and standard input, and
// whose policy allows them. A spoke of an older version, which has no fields for them, lacks it.
const InlineFiles = "inline-files"

// Limits of the files of a spawn. What they hold counts against [MaxValueBytes].
const (
	MaxFiles    = 32
	MaxFilePath = 512
)

// A File is one that the agent finds in its directory. What it holds is in [Sealed].
type File struct {
	Path string `json:"path"`           // relative to the directory
	Exec bool   `json:"exec,omitempty"` // it can be executed
}

// Inline reports whether s brings files, standard input or a prompt.
func (s *Spawn) Inline() bool { return len(s.Files) > 0 || s.Stdin || s.Prompt }

// sealedParts is how many values s has sealed: of its variables, files, standard input and prompt.
func (s *Spawn) sealedParts() int {
	n := len(s.Env) + len(s.Files)
	for _, is := range []bool{s.Stdin, s.Prompt} {
		if is {
			n++
		}
	}
	return n
}

// boundInline names files, standard input and prompt behind the variables. A name of a variable and a path are never
// empty: where one is, something else begins.
func (s *Spawn) boundInline(b []byte) []byte {
	for _, f := range s.Files {
		b = append(append(append(b, 0), f.Path...), 0)
		if f.Exec {
			b = append(b, 'x')
		}
		b = append(b, 0)
	}
	if s.Stdin {
		b = append(b, 0, 0)
	}
	if s.Prompt {
		b = append(b, 0, 0, 'p')
	}
	return b
}

// inText writes what files, standard input and prompt hold as text, which variables are already.
func (s *Spawn) inText(v Values) []string {
	plain := make([]string, len(v))
	for i, value := range v {
		plain[i] = value.Reveal()
		if i >= len(s.Env) {
			plain[i] = base64.StdEncoding.EncodeToString([]byte(plain[i]))
		}
	}
	return plain
}

// fromText undoes inText, and takes one spelling only.
func (s *Spawn) fromText(v Values) error {
	for i := min(len(s.Env), len(v)); i < len(v); i++ {
		text := v[i].Reveal()
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil || base64.StdEncoding.EncodeToString(raw) != text {
			return Refuse(BadEnv, "a file, the standard input or the prompt of the order is not in base64")
		}
		v[i] = NewSecret(string(raw))
	}
	return nil
}

// checkInline checks which files s brings, and that it can have them.
func (s *Spawn) checkInline() error {
	switch {
	case s.Inline() && s.Runtime == RuntimeNoop:
		return Refuse(Validation, "runtime noop starts nothing, and takes no files, no standard input and no prompt")
	case len(s.Files) > 0 && s.Dir != "":
		return Refuse(Validation, "the order has files and the directory %s: files are put into a fresh directory only", Clip(s.Dir)).
			Hinting("leave out the directory, or the files")
	case len(s.Files) > MaxFiles:
		return Refuse(Validation, "%d files, limit %d", len(s.Files), MaxFiles).Hinting("put them into one archive, which the agent unpacks")
	}
	here := map[string]bool{}
	for _, f := range s.Files {
		if err := CheckFilePath(f.Path); err != nil {
			return err
		}
		if here[f.Path] {
			return Refuse(BadPath, "the file %s is given twice", Clip(f.Path))
		}
		here[f.Path] = true
	}
	for _, f := range s.Files {
		for dir := path.Dir(f.Path); dir != "."; dir = path.Dir(dir) {
			if here[dir] {
				return Refuse(BadPath, "%s is to be a file, and the directory of %s", Clip(dir), Clip(f.Path))
			}
		}
	}
	return nil
}

// CheckFilePath wants a path of a file that leads to one place below the directory, and can be shown.
func CheckFilePath(p string) error {
	switch {
	case len(p) > MaxFilePath || !IsText(p) || strings.ContainsFunc(p, func(r rune) bool { return r < 0x20 || r == 0x7f }):
		return Refuse(BadPath, "the path of a file is longer than %d bytes, has control characters or is not UTF-8", MaxFilePath)
	case !filepath.IsLocal(p) || p == ".":
		return Refuse(BadPath, "the path %q of a file does not lead to a place in the agent's directory", Clip(p)).
			Hinting("name it from there, as in input/data.json")
	case path.Clean(p) != p:
		return Refuse(BadPath, "the path %q of a file is not in its shortest form", Clip(p)).Hinting("write %s", Clip(path.Clean(p)))
	}
	for name := range strings.SplitSeq(p, "/") {
		if len(name) > 255 {
			return Refuse(BadPath, "a name in the path %q of a file is longer than 255 bytes", Clip(p))
		}
	}
	return nil
}
