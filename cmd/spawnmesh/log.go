package main

import (
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/spawnmesh/spawnmesh/commands"
)

// What --log-level and --log-format take.
var (
	logLevels  = []string{"debug", "info", "warn", "error"}
	logFormats = []string{"text", "json"}
)

// A logChoice is how an instance logs. What no flag says, a variable of the
// environment may.
type logChoice struct {
	level, format string
	flags         *pflag.FlagSet
}

// add adds the flags.
func (l *logChoice) add(f *pflag.FlagSet) {
	l.flags = f
	f.StringVar(&l.level, "log-level", "info", "log events of `LEVEL` and above: "+strings.Join(logLevels, ", ")+" ($SPAWNMESH_LOG_LEVEL)")
	f.StringVar(&l.format, "log-format", "text", "log each event as one line of `FORMAT`: "+strings.Join(logFormats, ", ")+" ($SPAWNMESH_LOG_FORMAT)")
}

// logger returns the logger that was chosen.
func (l *logChoice) logger(a *app) (*slog.Logger, error) {
	level, err := l.chosen(a, "log-level", "SPAWNMESH_LOG_LEVEL", l.level, logLevels)
	if err != nil {
		return nil, err
	}
	format, err := l.chosen(a, "log-format", "SPAWNMESH_LOG_FORMAT", l.format, logFormats)
	if err != nil {
		return nil, err
	}
	var least slog.Level
	if err := least.UnmarshalText([]byte(level)); err != nil {
		return nil, err
	}
	if format == "json" {
		return a.jsonLogger(least), nil
	}
	return a.logger(least), nil
}

// chosen is the value of a flag or, where that is not given, of its variable: one of list.
func (l *logChoice) chosen(a *app, flag, variable, value string, list []string) (string, error) {
	name := "--" + flag
	if v := a.getenv(variable); v != "" && !l.flags.Changed(flag) {
		name, value = variable, v
	}
	if !slices.Contains(list, value) {
		return "", misuse("%s is %q, which is none of: %s", name, commands.Clip(value), strings.Join(list, ", "))
	}
	return value, nil
}

// logTime is how a log tells the time, to the millisecond and with its zone.
const logTime = "2006-01-02T15:04:05.000Z07:00"

// logger writes what is at least as grave as level to standard error. A person
// at a terminal knows which day it is.
func (a *app) logger(level slog.Level) *slog.Logger {
	form := logTime
	if terminal(a.err) {
		form = "15:04:05.000"
	}
	return slog.New(slog.NewTextHandler(a.err, logOptions(level, form)))
}

// jsonLogger is logger for a program that reads: each line is a JSON object.
func (a *app) jsonLogger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewJSONHandler(a.err, logOptions(level, logTime)))
}

// logOptions let a log tell its time as form has it. A duration is told in words in
// either format: JSON would have it in nanoseconds.
func logOptions(level slog.Level, form string) *slog.HandlerOptions {
	return &slog.HandlerOptions{Level: level, ReplaceAttr: func(groups []string, at slog.Attr) slog.Attr {
		switch {
		case len(groups) == 0 && at.Key == slog.TimeKey && at.Value.Kind() == slog.KindTime:
			at.Value = slog.StringValue(at.Value.Time().Format(form))
		case at.Value.Kind() == slog.KindDuration:
			at.Value = slog.StringValue(at.Value.Duration().String())
		}
		return at
	}}
}
