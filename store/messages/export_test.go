package messages

import "fmt"

// Statements are all by which readers and people find messages, but for words: those have an index of another kind.
func Statements() []string {
	list := []string{unread, again, anyUnread}
	for _, t := range []Terms{{}, {From: "a"}, {To: "a"}, {Type: "a"}, {Correlation: "a"}} {
		for _, rising := range []bool{false, true} {
			t.Rising = rising
			sql, _, _ := t.list()
			list = append(list, sql)
		}
	}
	return list
}

// ByWords is the statement by which words are found in what is not the newest.
func ByWords() string { return fmt.Sprintf(byWords, "<", "DESC") }

// Written is what a notification says of messages for readers of a workspace.
func Written(workspace string, readers ...string) string {
	list := map[address]bool{}
	for _, r := range readers {
		list[address{workspace, r}] = true
	}
	return written(list)
}
