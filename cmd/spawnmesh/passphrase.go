package main

import (
	"context"
	"fmt"
	"strings"

	"filippo.io/age"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
)

// leastPassphrase is how many bytes a passphrase has at least: who has a backup can try many.
const leastPassphrase = 12

// secretFlags say what keys of a backup are encrypted for, or opened with.
type secretFlags struct{ passphrase, recipient, identity string }

func (s *secretFlags) addPassphrase(f *pflag.FlagSet) {
	f.StringVar(&s.passphrase, "passphrase-file", "", "read the passphrase from `FILE`, its first line")
}

func (s *secretFlags) addIdentity(f *pflag.FlagSet) {
	f.StringVar(&s.identity, "identity", "", "open the keys with the age identity in `FILE`")
}

// recipientFor is whom the keys are encrypted for, and what opens them where that is known here.
func (s *secretFlags) recipientFor(ctx context.Context, a *app) (age.Recipient, age.Identity, error) {
	if s.recipient != "" && s.passphrase != "" {
		return nil, nil, misuse("--recipient and --passphrase-file are given, and one opens the keys").Hinting("give one of them")
	}
	if s.recipient != "" {
		to, err := age.ParseX25519Recipient(s.recipient)
		if err != nil {
			return nil, nil, misuse("--recipient is no age recipient: %v", err).Hinting("age-keygen prints one: age1...")
		}
		return to, nil, nil
	}
	words, err := s.words(ctx, a, true)
	if err != nil {
		return nil, nil, err
	}
	to, err := age.NewScryptRecipient(words)
	if err != nil {
		return nil, nil, err
	}
	check, err := age.NewScryptIdentity(words)
	return to, check, err
}

// identityIfAny is what opens the keys, nil where no flag says it.
func (s *secretFlags) identityIfAny(ctx context.Context, a *app) (age.Identity, error) {
	if s.identity == "" && s.passphrase == "" {
		return nil, nil
	}
	return s.identityAsked(ctx, a)
}

// identityAsked is what opens the keys: that of a flag, or a passphrase that is asked for.
func (s *secretFlags) identityAsked(ctx context.Context, a *app) (age.Identity, error) {
	if s.identity == "" {
		words, err := s.words(ctx, a, false)
		if err != nil {
			return nil, err
		}
		return age.NewScryptIdentity(words)
	}
	text, err := a.readNamed(ctx, source{what: "--identity", path: s.identity, most: 64 << 10, secret: true})
	if err != nil {
		return nil, err
	}
	list, err := age.ParseIdentities(strings.NewReader(text))
	if err != nil || len(list) != 1 {
		return nil, misuse("%s is no file with one age identity", s.identity).Hinting("age-keygen writes one")
	}
	return list[0], nil
}

// words is the passphrase: of the file, or typed, twice where it is new.
func (s *secretFlags) words(ctx context.Context, a *app, fresh bool) (string, error) {
	if s.passphrase != "" {
		line, err := a.readNamed(ctx, source{what: "--passphrase-file", path: s.passphrase, most: 4 << 10, line: true, secret: true})
		if err != nil {
			return "", err
		}
		line = strings.TrimRight(line, "\r")
		return line, checkPassphrase(line)
	}
	if !terminal(a.in) {
		return "", misuse("there is no passphrase, and no terminal to ask for it").Hinting("give --passphrase-file FILE")
	}
	first, err := a.askSecret(ctx, "passphrase of the backup: ")
	if err != nil || !fresh {
		return first, err
	}
	if err := checkPassphrase(first); err != nil {
		return "", err
	}
	again, err := a.askSecret(ctx, "once more: ")
	if err == nil && again != first {
		err = misuse("the two passphrases are not the same; nothing was done").Hinting("try again")
	}
	return first, err
}

func checkPassphrase(words string) error {
	if len(words) < leastPassphrase {
		return misuse("the passphrase has less than %d bytes: who has the backup could guess it", leastPassphrase).Hinting("take several words")
	}
	return nil
}

// askSecret reads a line of the terminal, which does not show it, until ctx ends.
func (a *app) askSecret(ctx context.Context, prompt string) (string, error) {
	f, _ := fileOf(a.in)
	fd := int(f.Fd())
	shown, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return "", fmt.Errorf("asking for the passphrase: %w", err)
	}
	hidden := *shown
	hidden.Lflag &^= unix.ECHO
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, &hidden); err != nil {
		return "", fmt.Errorf("asking for the passphrase: %w", err)
	}
	defer func() { _ = unix.IoctlSetTermios(fd, unix.TCSETS, shown) }()
	fmt.Fprint(a.err, prompt)
	defer fmt.Fprintln(a.err)
	line, err := typedLine(ctx, f)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("reading the passphrase: %w", err)
	}
	return line, err
}
