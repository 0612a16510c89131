package runtime

// CheckEnv checks variables as [Exec.Spec] will, so that a task can be refused
// before it is accepted. allowed are the dangerous names that the local policy
// lets be set. The error is a *Refusal.
func CheckEnv(env map[string]string, allowed []string) error {
	_, err := Exec{Env: env, Allowed: allowed}.environment()
	return err
}
