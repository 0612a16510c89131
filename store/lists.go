package store

import (
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// roomyBytes makes room for a list of bytes at once. Such lists are the envelopes of a
// batch, nearly all that a statement carries: a buffer that doubles makes as much garbage
// again, and copies it.
func roomyBytes(conn *pgx.Conn) {
	bytes, _ := conn.TypeMap().TypeForOID(pgtype.ByteaOID)
	conn.TypeMap().RegisterType(&pgtype.Type{Name: "_bytea", OID: pgtype.ByteaArrayOID, Codec: listCodec{&pgtype.ArrayCodec{ElementType: bytes}}})
}

type listCodec struct{ *pgtype.ArrayCodec }

// PlanEncode is pgx's, with room for the whole list.
func (c listCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, list := value.([][]byte); list && format == pgtype.BinaryFormatCode {
		return encodeList{c.ArrayCodec.PlanEncode(m, oid, format, pgtype.FlatArray[[]byte]{})}
	}
	return c.ArrayCodec.PlanEncode(m, oid, format, value)
}

type encodeList struct{ pgtype.EncodePlan }

// Encode appends a list.
func (e encodeList) Encode(value any, to []byte) ([]byte, error) {
	list, size := value.([][]byte), listHead
	for _, b := range list {
		size += itemHead + len(b)
	}
	return e.EncodePlan.Encode(pgtype.FlatArray[[]byte](list), slices.Grow(to, size))
}

// Bytes of the binary format of an array: before the first item, and before each.
const (
	listHead = 20
	itemHead = 4
)
