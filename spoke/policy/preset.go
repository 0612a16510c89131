package policy

// Presets are policies to begin with, as files with comments.
var Presets = map[string]string{
	"deny":     denyPreset,
	"commands": commandsPreset,
	"open":     openPreset,
}

const denyPreset = `# What may run on this host. Nothing may, until you allow it here.
# A longer example with comments: spawnmesh spoke policy init --preset commands --force
version: 1
runtimes: []           # exec starts programs, noop starts nothing
commands: []           # which command lines
directories: []        # where agents may be asked to run
environment: []        # which variables an order may set
capabilities: []       # what this host offers
limits:
  timeout: 24h         # the longest run of an agent
`

const commandsPreset = `# What may run on this host. Only this file decides; no message changes it.
#
# After a change:      spawnmesh spoke policy reload      (or send SIGHUP to the spoke)
# To try a command:    spawnmesh spoke policy test -- date -u
version: 1

# exec starts programs; noop starts nothing and shows that the way works.
runtimes: [exec, noop]

# Command lines that may run. An order fits an entry when its words are exactly
# the entry's: "date -u" allows date -u and neither date nor date -u -s noon.
# The word * is exactly one argument, whatever it says; ** at the end is any further
# ones or none, and \* a star. So an entry with one of them is as strong as the
# strongest argument of its program. No shell reads the words.
#
# Think before you add a program that can start others or open files of the
# order's choice: shells, interpreters, compilers, test runners, make, git, tar,
# find, xargs, env, ssh, editors, curl. With ** each of them is a shell.
# One exact command line of such a program is as safe as the files it reads.
commands:
  - echo **
  - sleep **
  - "true"
  - "false"
  - date -u
  - uptime
  - uname -a
  - df -h
# An entry can also set the environment of its agents; see env below:
#  - run: /opt/nightly/report --all
#    env_from_file: report.env

# Where an order may ask an agent to run. Without it an agent gets a fresh directory.
directories: []

# Names of variables that an order may set, such as [CI]. Names that make programs
# run other code (LD_PRELOAD, PATH, GIT_*, ...) have to be listed by their full name.
environment: []

# Whether an order may bring files, into its agent's directory, and standard input. A
# program that runs what it finds there, such as make, or what it reads, such as sh, then
# runs what the order says.
inline_files: false

# How much the inputs of an order may be together, such as 1GiB: directories and files that the
# spoke fetches from its hub into its data directory. With 0 an order may have none. A program
# runs what it finds in them as it does with inline_files.
max_input_bytes: 0

# What this host sets for every agent, whatever the order asks for. The values never
# leave this host. Secrets belong in the file, which only the spoke's user may read
# (chmod 600): lines of NAME=VALUE, taken as they stand.
# env:
#   LANG: C.UTF-8
# env_from_file: agents.env
# home: /home/agents                # HOME; without it a directory of the agent's own
# path: /usr/local/bin:/usr/bin     # PATH, and where programs are looked up

capabilities: []       # what this host offers to be matched with, such as [gpu]

limits:
  timeout: 24h         # the longest run of an agent
`

const openPreset = `# What may run on this host: anything. Use it only where the hub's operator is you.
version: 1
runtimes: [exec, noop]
commands: ["*"]        # every command, also a shell
directories: ["*"]     # anywhere
environment: ["*"]     # every variable but those that make programs run other code
inline_files: true     # files and standard input that come with an order
max_input_bytes: 1GiB  # what a spoke fetches for an order from its hub
capabilities: []
limits:
  timeout: 24h         # the longest run of an agent
`
