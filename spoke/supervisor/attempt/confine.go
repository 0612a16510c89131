package attempt

// A Confine bounds what an agent reaches of its host. The zero Confine bounds nothing.
type Confine struct {
	// User is the user that the agent runs as. Zero = that of its spoke.
	User User `json:"user,omitzero"`
	// Landlock restricts the agent to the paths and ports below, and to signals and
	// abstract sockets of its own.
	Landlock bool `json:"landlock,omitempty"`
	// Read and Write are absolute paths: the agent may read and execute what is below the
	// first, and do anything below the second. What is not there is left out.
	Read  []string `json:"read,omitempty"`
	Write []string `json:"write,omitempty"`
	// Ports are the TCP ports that it may connect to, unless AnyPort is set. It may
	// listen on none of another user's, and on any where AnyPort is set.
	AnyPort bool    `json:"any_port,omitempty"`
	Ports   []int64 `json:"ports,omitempty"`
	// Wrap is a program with arguments that executes the agent's in namespaces of its own; the
	// agent's argument vector follows. None = the agent is executed itself.
	Wrap []string `json:"wrap,omitempty"`
}

// A User is a user of the host that runs one agent and nothing else.
type User struct {
	// ID is user and group. 0 = none.
	ID int64 `json:"id,omitempty"`
	// Reaper is a user that nothing ever runs as. It ends all that runs as the first.
	Reaper int64 `json:"reaper,omitempty"`
}
