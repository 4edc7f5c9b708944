// Package api holds the wire types of the HTTP API and the Go client for it.
//
// Each resource of the people's API has a file with its types and calls; the agent
// protocol is in agent.go and agentcalls.go. The types are plain data with JSON names that stay; server
// converts them to and from the nouns. cli and agent speak to the server
// through this package and through nothing else.
package api
