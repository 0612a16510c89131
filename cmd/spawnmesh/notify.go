package main

import (
	"context"
	"net"
	"strings"
)

// notify tells systemd, where it started this process with Type=notify, how the process
// stands: READY=1 or STOPPING=1. Without it there is nobody to tell.
func (a *app) notify(ctx context.Context, state string) error {
	socket := a.getenv("NOTIFY_SOCKET")
	if socket == "" {
		return nil
	}
	if name, abstract := strings.CutPrefix(socket, "@"); abstract {
		socket = "\x00" + name
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unixgram", socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write([]byte(state))
	return err
}
