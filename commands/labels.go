package commands

import (
	"maps"
	"slices"
	"strings"
)

// Labels are names and values by which people find agents again. They are the hub's own: no spoke is
// told.
type Labels map[string]string

// Limits of labels.
const (
	MaxLabels     = 16
	MaxLabelBytes = 63 // of a name, and of a value
)

// Check checks l against the limits; the error is a [*Refused].
func (l Labels) Check() error {
	if len(l) > MaxLabels {
		return Refuse(Validation, "%d labels, limit %d", len(l), MaxLabels)
	}
	for name, value := range l {
		if !isLabel(name) || value != "" && !isLabel(value) {
			return Refuse(Validation, "the label %q=%q has a name or a value that is not 1 to %d letters, digits and . _ / - (only a value may be empty)", Clip(name), Clip(value), MaxLabelBytes)
		}
	}
	return nil
}

// Text lists l as people write labels.
func (l Labels) Text() string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(l)) {
		list = append(list, name+"="+l[name])
	}
	return strings.Join(list, ",")
}

// isLabel reports whether text may be the name of a label, or its value.
func isLabel(text string) bool {
	return text != "" && len(text) <= MaxLabelBytes && !strings.ContainsFunc(text, func(r rune) bool {
		plain := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !plain && !strings.ContainsRune("._/-", r)
	})
}
