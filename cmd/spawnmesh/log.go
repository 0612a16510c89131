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

// A logChoice is how an instance logs.
type logChoice struct{ level, format string }

// add adds the flags.
func (l *logChoice) add(f *pflag.FlagSet) {
	f.StringVar(&l.level, "log-level", "info", "log lines of `LEVEL` and above: "+strings.Join(logLevels, ", "))
	f.StringVar(&l.format, "log-format", "text", "write the lines of the log as `FORMAT`: "+strings.Join(logFormats, ", "))
}

// check says what is no level or no format.
func (l *logChoice) check() error {
	for _, c := range []struct {
		flag, value string
		list        []string
	}{{"--log-level", l.level, logLevels}, {"--log-format", l.format, logFormats}} {
		if !slices.Contains(c.list, c.value) {
			return misuse("%s is %q, which is none of: %s", c.flag, commands.Clip(c.value), strings.Join(c.list, ", "))
		}
	}
	return nil
}

// logger returns the logger that was chosen; the choice was checked.
func (l *logChoice) logger(a *app) *slog.Logger {
	least := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}[l.level]
	if l.format == "json" {
		return a.jsonLogger(least)
	}
	return a.logger(least)
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
