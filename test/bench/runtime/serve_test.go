package runtime_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
)

// serveCommand makes this program the server that runs in the job.
const serveCommand = "serve"

// What a connection to the server is for is its first byte, and then a number of bytes.
const (
	sendBytes byte = 's' // the server sends so many
	takeBytes byte = 't' // the server takes so many and answers with one
	echoBytes byte = 'e' // the server sends back what it gets
)

// serve listens on a free port, which it prints, and serves until it is ended.
func serve() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}

	address, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return errors.New("the server listens on something else")
	}

	fmt.Println("port", address.Port)

	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}

		go func() {
			defer func() { _ = conn.Close() }()
			_ = answer(conn) // whoever measures notices
		}()
	}
}

// answer serves one connection.
func answer(conn net.Conn) error {
	var head [9]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return err
	}

	n := int64(binary.BigEndian.Uint64(head[1:]))

	switch head[0] {
	case sendBytes:
		return send(conn, n)
	case takeBytes:
		if err := take(conn, n); err != nil {
			return err
		}

		_, err := conn.Write([]byte{1})

		return err
	case echoBytes:
		_, err := io.Copy(conn, conn)
		return err
	}

	return errors.New("the first byte of a connection says nothing")
}

// block is how much is written and read at a time.
const block = 256 << 10

// send writes so many bytes.
func send(to io.Writer, n int64) error {
	buf := make([]byte, block)

	for n > 0 {
		wrote, err := to.Write(buf[:min(n, block)])
		if err != nil {
			return err
		}

		n -= int64(wrote)
	}

	return nil
}

// take reads so many bytes.
func take(from io.Reader, n int64) error {
	buf := make([]byte, block)

	for n > 0 {
		read, err := from.Read(buf)
		n -= int64(read)

		if err != nil && n > 0 {
			return err
		}
	}

	return nil
}

// ask begins a connection to the server.
func ask(to io.Writer, what byte, n int64) error {
	head := make([]byte, 9)
	head[0] = what
	binary.BigEndian.PutUint64(head[1:], uint64(n))
	_, err := to.Write(head)

	return err
}
