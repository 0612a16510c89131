package node

import (
	"encoding/base64"
	"errors"
	"strconv"

	"github.com/google/uuid"

	"github.com/spawnmesh/spawnmesh/commands"
)

// cursorOf is where a list goes on, the newest first, behind a task or a row: ids and numbers grow, so what is
// created meanwhile stands before it.
func cursorOf(id string) string { return base64.RawURLEncoding.EncodeToString([]byte(id)) }

// idOf is the id that a cursor stands behind; "" of none, which is the beginning of a list.
func idOf(cursor string) (string, error) {
	return behind(cursor, func(text string) error {
		id, err := uuid.Parse(text)
		if err == nil && id.String() != text { // it takes other spellings, too
			err = errors.New("no id")
		}
		return err
	})
}

// seqOf is the number that a cursor stands behind; 0 of none.
func seqOf(cursor string) (seq int64, err error) {
	_, err = behind(cursor, func(n string) (err error) {
		if seq, err = strconv.ParseInt(n, 10, 64); err == nil && (seq < 1 || strconv.FormatInt(seq, 10) != n) {
			err = errors.New("no number of a row")
		}
		return err
	})
	return seq, err
}

// limitOf is how many items of a list are asked for, at most so many; usual where nothing is said.
func limitOf(asked *int, usual, most int) (int, error) {
	if asked == nil {
		return usual, nil
	}
	if *asked < 1 || *asked > most {
		return 0, commands.Refuse(commands.Validation, "limit is a number from 1 to %d", most)
	}
	return *asked, nil
}

func behind(cursor string, check func(string) error) (string, error) {
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil && cursor != "" {
		err = check(string(text))
	}
	if err != nil {
		return "", commands.Refuse(commands.Validation, "cursor %q is not the next of a list", commands.Clip(cursor))
	}
	return string(text), nil
}
