// Package commands is the vocabulary that hub and spokes share: what may be
// asked, what may be answered, the states of a task and the reasons why an ask
// is refused.
//
// Nothing here does I/O, reads a clock or keeps state. A [Message] comes only
// from [Parse], which takes only a [signing.Opened]: whoever holds one holds
// something that was signed, addressed to this instance and in time.
package commands
