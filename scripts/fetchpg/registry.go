package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

var errNoRegistry = errors.New("no npm registry is set up on this machine: " +
	"set NPM_CONFIG_REGISTRY to the address of one, or write registry=ADDRESS into ~/.npmrc")

// findRegistry returns the address of the registry that npm would use: from environ, from ask (npm itself, where it is
// installed), or from the files that npm reads. No address is built in: which registry to trust is the machine's choice.
func findRegistry(ctx context.Context, environ []string, ask func(context.Context) string) (*url.URL, error) {
	env := func(name string) string { // npm reads its variables in any case
		for _, e := range environ {
			if key, value, _ := strings.Cut(e, "="); strings.EqualFold(key, name) && value != "" {
				return value
			}
		}
		return ""
	}
	address := env("NPM_CONFIG_REGISTRY")
	if address == "" {
		address = ask(ctx)
	}
	user := env("NPM_CONFIG_USERCONFIG")
	if user == "" {
		user = filepath.Join(env("HOME"), ".npmrc")
	}
	global := env("NPM_CONFIG_GLOBALCONFIG")
	if global == "" {
		global = "/etc/npmrc"
	}
	for _, file := range []string{user, global} {
		if address != "" {
			break
		}
		var err error
		if address, err = fromFile(file, env); err != nil {
			return nil, err
		}
	}
	if address == "" {
		return nil, errNoRegistry
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, errors.New("the npm registry's address is not one of http or https: correct it where it is set " +
			"(NPM_CONFIG_REGISTRY, or registry= in ~/.npmrc or /etc/npmrc)") // it may hold a password: not shown
	}
	return u, nil
}

// askNpm returns what npm is set up for, or nothing where there is no npm.
func askNpm(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "npm", "config", "get", "registry").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// fromFile returns the registry that a file of npm names, or nothing. No other line of it is kept.
func fromFile(path string, env func(string) string) (string, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	} else if err != nil {
		return "", fmt.Errorf("reading npm's settings: %w", err)
	}
	defer f.Close()
	address := ""
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if key, value, ok := strings.Cut(lines.Text(), "="); ok && strings.TrimSpace(key) == "registry" {
			address = os.Expand(strings.Trim(strings.TrimSpace(value), `"'`), env)
		}
	}
	return address, lines.Err()
}
