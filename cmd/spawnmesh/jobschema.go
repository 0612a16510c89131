package main

import (
	"strings"

	"github.com/spf13/pflag"

	"github.com/spawnmesh/spawnmesh/commands"
)

// A schema is one of JSON Schema, with its fields in the order in which people read them.
type schema map[string]any

// jobSchema describes a document of a file of jobs. It is made of the flags of spawn.
func jobSchema() schema {
	fields := schema{argvField: schema{"type": "array", "items": schema{"type": words}, "minItems": 1,
		"description": "The program and its arguments; no shell reads them."}}
	for _, j := range new(spawnFlags).jobFields() {
		fields[j.name] = fieldSchema(j.flag)
	}
	return schema{
		"$schema":     "https://json-schema.org/draft/2020-12/schema",
		"title":       "A document for spawnmesh spawn --jobs",
		"description": "A job, or jobs with what they share. Files are named from the directory of the file of jobs.",
		"oneOf": []any{ref("job"), schema{"type": "object", "additionalProperties": false, "required": []string{"jobs"}, "properties": schema{
			"defaults": ref("job"), "jobs": schema{"type": "array", "items": ref("job")}}}},
		"$defs": schema{"job": schema{"type": "object", "additionalProperties": false, "properties": fields}},
	}
}

func ref(name string) schema { return schema{"$ref": "#/$defs/" + name} }

// words are what YAML makes of one; it is taken as it is written.
var words = []string{"string", "number", "boolean"}

// choices are the values of flags that take no others.
var choices = map[string][]string{
	"isolation": commands.IsolationLevels,
	"runtime":   {commands.RuntimeExec, commands.RuntimeNoop},
	"on-loss":   {commands.LossFails, commands.LossReruns},
}

func fieldSchema(flag *pflag.Flag) schema {
	form, usage := pflag.UnquoteUsage(flag)
	usage = strings.NewReplacer(", repeatable)", ")", " (repeatable)", "").Replace(usage)
	s := schema{"description": strings.ToUpper(usage[:1]) + usage[1:] + "."}
	switch {
	case givesNames(flag):
		s["type"], s["additionalProperties"] = "object", schema{"type": words}
	case several(flag):
		s["type"], s["items"] = "array", schema{"type": words}
	case flag.Value.Type() == "bool":
		s["type"] = "boolean"
	case flag.Value.Type() == "int":
		s["type"] = "integer"
	default:
		s["type"] = "string"
	}
	if list := choices[flag.Name]; list != nil {
		s["enum"] = list
	}
	if form != "" && form == strings.ToUpper(form) && !several(flag) {
		s["title"] = form
	}
	if flag.DefValue != "" && flag.DefValue != "0" && flag.DefValue != "false" && flag.DefValue != "[]" {
		s["default"] = flag.DefValue
	}
	return s
}
