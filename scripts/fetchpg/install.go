package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// maxPackage is more than any of the packages has, in bytes.
const maxPackage = 256 << 20

// A pkg is one package of a registry, whose bytes are known beforehand.
type pkg struct {
	name   string // with its scope
	file   string
	sha512 string // in base64
}

// install makes dir the package's content. A dir that is there is replaced, once the new one is whole.
func (p pkg) install(ctx context.Context, registry *url.URL, dir string) error {
	body, err := p.fetch(ctx, registry)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	fresh, err := os.MkdirTemp(filepath.Dir(dir), "fetch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(fresh) // not there any more when it was moved
	if err := unpack(fresh, body); err != nil {
		return err
	}
	return errors.Join(os.Chmod(fresh, 0o755), os.RemoveAll(dir), os.Rename(fresh, dir))
}

func (p pkg) fetch(ctx context.Context, registry *url.URL) ([]byte, error) {
	from := registry.JoinPath(p.name, "-", p.file)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from.String(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the registry answers %s for %s", resp.Status, from.Redacted())
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxPackage))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", from.Redacted(), err)
	}
	sum := sha512.Sum512(body)
	if got := base64.StdEncoding.EncodeToString(sum[:]); got != p.sha512 {
		return nil, fmt.Errorf("%s is not the package that is expected: its sha512 is %s and should be %s (nothing was changed)",
			from.Redacted(), got, p.sha512)
	}
	return body, nil
}

// unpack writes the files of a package into dir, which no name in it can leave, and makes the links that it lists.
func unpack(dir string, body []byte) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	packed, err := gzip.NewReader(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("unpacking: %w", err)
	}
	for files := tar.NewReader(packed); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return link(root)
		} else if err != nil {
			return fmt.Errorf("unpacking: %w", err)
		}
		// The first element is "package" in what npm packs; npm ignores its name too.
		_, name, _ := strings.Cut(h.Name, "/")
		if h.Typeflag != tar.TypeReg || name == "" {
			continue
		}
		if err := write(root, name, h.FileInfo().Mode().Perm()|0o644, files); err != nil {
			return fmt.Errorf("unpacking %s: %w", h.Name, err)
		}
	}
}

func write(root *os.Root, name string, mode os.FileMode, from io.Reader) error {
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}

// link makes the symbolic links between libraries. A package of npm holds none, so this one lists them in a file.
func link(root *os.Root) error {
	const list = "native/pg-symlinks.json"
	raw, err := root.ReadFile(list)
	if err != nil {
		return err
	}
	var links []struct{ Source, Target string } // the link is at target
	if err := json.Unmarshal(raw, &links); err != nil {
		return fmt.Errorf("reading %s: %w", list, err)
	}
	for _, l := range links {
		to, err := filepath.Rel(path.Dir(l.Target), l.Source)
		if err != nil {
			return fmt.Errorf("reading %s: %w", list, err)
		}
		if err := root.Symlink(to, l.Target); err != nil {
			return fmt.Errorf("linking %s: %w", l.Target, err)
		}
	}
	return nil
}
