// Package messages is the log of what agents, workers and people of a workspace tell each other, and how far each
// reader of it is.
//
// Under failure. A message is stored before its sender is answered, and a sender that was not answered sends it once more
// under its id. A reader is given a message until it acknowledges it, more than once where it does not.
//
// Under concurrency. Numbers become visible in their order: whoever has read up to one never misses a lower one that
// comes later. So whoever adds messages has the last number until its commit, and those of one process that arrive at
// the same time are added in one transaction. Readers hold their own row only.
package messages
