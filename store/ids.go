package store

import (
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// textIDs lets ids that are text here travel as the 16 bytes that they are. Lists of them
// are in nearly every statement; as text each is quoted here and parsed there. What is no
// id travels as text all the same, and the server refuses it.
func textIDs(conn *pgx.Conn) {
	id := &pgtype.Type{Name: "uuid", OID: pgtype.UUIDOID, Codec: idCodec{}}
	conn.TypeMap().RegisterType(id)
	conn.TypeMap().RegisterType(&pgtype.Type{Name: "_uuid", OID: pgtype.UUIDArrayOID, Codec: &pgtype.ArrayCodec{ElementType: id}})
}

type idCodec struct{ pgtype.UUIDCodec }

// PlanEncode is pgx's, and that of text in the binary format.
func (c idCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, text := value.(string); text && format == pgtype.BinaryFormatCode {
		return encodeTextID{}
	}
	return c.UUIDCodec.PlanEncode(m, oid, format, value)
}

type encodeTextID struct{}

// Encode appends the bytes of an id.
func (encodeTextID) Encode(value any, to []byte) ([]byte, error) {
	text := value.(string)
	id, err := uuid.Parse(text)
	if err != nil || len(text) != len(uuid.Nil.String()) {
		return nil, fmt.Errorf("%d bytes are not the text of an id", len(text))
	}
	return append(to, id[:]...), nil
}
