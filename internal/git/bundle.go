package git

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Names of refs in bundles of this program.
const (
	Branches  = "refs/heads/spawnmesh/"
	InputRef  = Branches + "input"  // what an agent begins with
	OriginRef = Branches + "origin" // the last commit of InputRef that the repository of its operator has; absent where it is the same
)

// A Header is what stands before the objects of a bundle.
type Header struct {
	Needs []string          // commits that a repository must have to take it
	Refs  map[string]string // what it brings: commits by the names of their refs
}

const headerMost = 1 << 20 // needs have subjects of commits beside them

// ErrNoBundle says that bytes are no bundle that is taken here.
var ErrNoBundle = errors.New("no git bundle")

// ReadHeader reads the header of a bundle, and leaves r at its objects.
func ReadHeader(r *bufio.Reader) (h Header, err error) {
	left := headerMost
	next := func() (string, error) {
		text, err := line(r, left)
		left -= len(text) + 1
		return text, err
	}
	first, err := next()
	if err == nil && first != "# v2 git bundle" && first != "# v3 git bundle" {
		err = fmt.Errorf("%.20q", first)
	}
	if err != nil {
		return h, fmt.Errorf("%w: it does not begin as one: %w", ErrNoBundle, err)
	}
	h.Refs = map[string]string{}
	for {
		text, err := next()
		if err != nil {
			return h, fmt.Errorf("%w: its header has no end: %w", ErrNoBundle, err)
		}
		if text == "" {
			return h, nil
		}
		if err := h.add(text); err != nil {
			return h, err
		}
	}
}

// add reads one line of a header.
func (h *Header) add(text string) error {
	if text == "@object-format=sha1" || text == "@object-format=sha256" {
		return nil // the length of the names says it too
	}
	need, isNeed := strings.CutPrefix(text, "-")
	id, name, named := strings.Cut(need, " ")
	switch {
	case !IsID(id):
		return fmt.Errorf("%w: a line of its header is not understood: %.60q", ErrNoBundle, text)
	case isNeed:
		h.Needs = append(h.Needs, id)
	case !named || h.Refs[name] != "":
		return fmt.Errorf("%w: it names %.60q twice, or not at all", ErrNoBundle, name)
	default:
		h.Refs[name] = id
	}
	return nil
}

// line reads one line of at most so many bytes.
func line(r *bufio.Reader, most int) (string, error) {
	var text strings.Builder
	for {
		part, err := r.ReadSlice('\n')
		text.Write(part)
		if err == nil && text.Len() <= most {
			return text.String()[:text.Len()-1], nil
		}
		if text.Len() > most {
			return "", fmt.Errorf("it is longer than %d bytes", headerMost)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return "", err
		}
	}
}

// IsID reports whether text is the name of an object: 40 or 64 lower-case hex digits.
func IsID(text string) bool {
	return (len(text) == 40 || len(text) == 64) && strings.Trim(text, "0123456789abcdef") == ""
}

// write writes the header.
func (h Header) write(w io.Writer) error {
	var text strings.Builder
	text.WriteString("# v2 git bundle\n")
	for _, id := range h.Refs {
		if len(id) == 64 {
			text.Reset()
			text.WriteString("# v3 git bundle\n@object-format=sha256\n")
		}
	}
	for _, id := range h.Needs {
		fmt.Fprintf(&text, "-%s \n", id)
	}
	for _, name := range sorted(h.Refs) {
		fmt.Fprintf(&text, "%s %s\n", h.Refs[name], name)
	}
	text.WriteString("\n")
	_, err := io.WriteString(w, text.String())
	return err
}

// Bundle writes a bundle: the commits of refs with all that belongs to them, but what the needed ones have. Unlike "git bundle create" it
// needs no ref in the repository. A call says which repository.
func (g *Git) Bundle(ctx context.Context, c Call, h Header, w io.Writer) error {
	if err := h.write(w); err != nil {
		return err
	}
	var wanted strings.Builder
	for _, name := range sorted(h.Refs) {
		fmt.Fprintln(&wanted, h.Refs[name])
	}
	for _, id := range h.Needs {
		fmt.Fprintln(&wanted, "^"+id)
	}
	c.Args = []string{"pack-objects", "--revs", "--thin", "--stdout", "--delta-base-offset", "-q"}
	c.In, c.Out = strings.NewReader(wanted.String()), w
	return g.Run(ctx, c)
}
