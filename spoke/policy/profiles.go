package policy

// ProfilePresets are profiles to begin with, as files with comments.
var ProfilePresets = map[string]string{
	"shell": `# A script that comes as standard input. Whoever orders it can do all that an agent
# can do here.
runtime: exec
command: [sh, -s]
`,
	"claude": `# Claude Code, by its adapter for the Agent Client Protocol. On this host:
#   npm install --global @agentclientprotocol/claude-agent-acp
# Log in as the user that agents run as, or let an order bring a key of its own.
runtime: acp
command: [claude-agent-acp]
` + codingPreset + `environment: [ANTHROPIC_API_KEY]
account: claude
limit_patterns: ["(?i)(usage|rate|session|weekly) limit"]
`,
	"codex": `# Codex, by its adapter for the Agent Client Protocol. On this host:
#   npm install --global @agentclientprotocol/codex-acp
# Log in as the user that agents run as, or let an order bring a key of its own.
runtime: acp
command: [codex-acp]
` + codingPreset + `environment: [OPENAI_API_KEY]
auth: api-key          # where nobody is logged in, by that key
account: codex
limit_patterns: ["(?i)(usage|rate) limit"]
`,
	"gemini": `# Gemini CLI, which speaks the Agent Client Protocol itself. On this host:
#   npm install --global @google/gemini-cli
# Log in as the user that agents run as, or let an order bring a key of its own.
runtime: acp
command: [gemini, --acp]
` + codingPreset + `environment: [GEMINI_API_KEY]
account: gemini
limit_patterns: ["(?i)quota exceeded", "(?i)rate limit"]
`,
	"opencode": `# opencode, which speaks the Agent Client Protocol itself. On this host:
#   npm install --global opencode-ai
# Log in as the user that agents run as.
runtime: acp
command: [opencode, acp]
` + codingPreset,
	"acp": `# Any agent that speaks the Agent Client Protocol on its standard input and output.
runtime: acp
command: [my-agent, --acp]
` + codingPreset,
}

const codingPreset = `# Which tools it may use: read, edit, delete, move, search, execute, think, fetch,
# switch_mode, other; * is all that is not named. A person is asked for the rest.
allow: [read, search, think, edit]
# deny: [fetch]
# session: new         # begin a new session in each attempt
`
