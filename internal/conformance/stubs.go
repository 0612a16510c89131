package conformance

import "context"

type mesh struct{}

func withHub(ctx context.Context, s *stage) error { return nil }
func unconfirmedRules() []Rule                    { return nil }
func faultRules() []Rule                          { return nil }
func historyRules() []Rule                        { return nil }
func keyRules() []Rule                            { return nil }
func hubRules() []Rule                            { return nil }
