package conroi.spark

import java.math.{BigDecimal, BigInteger}

import org.apache.arrow.vector._
import org.apache.arrow.vector.complex.{ListVector, MapVector, StructVector}
import org.apache.spark.sql.types._
import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnVector, ColumnarArray, ColumnarMap}
import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.types.UTF8String

/** A column of which only some getters make sense. */
private abstract class PlainVector(kind: DataType) extends ColumnVector(kind) {
  private def none = throw new UnsupportedOperationException(s"${getClass.getSimpleName} of ${kind.typeName}")
  override def close(): Unit = ()
  override def getBoolean(row: Int): Boolean = none
  override def getByte(row: Int): Byte = none
  override def getShort(row: Int): Short = none
  override def getInt(row: Int): Int = none
  override def getLong(row: Int): Long = none
  override def getFloat(row: Int): Float = none
  override def getDouble(row: Int): Double = none
  override def getArray(row: Int): ColumnarArray = none
  override def getMap(row: Int): ColumnarMap = none
  override def getDecimal(row: Int, precision: Int, scale: Int): Decimal = none
  override def getUTF8String(row: Int): UTF8String = none
  override def getBinary(row: Int): Array[Byte] = none
  override def getChild(ordinal: Int): ColumnVector = none
}

/** A column over the memory of an Arrow vector: which values are null. Addresses are read once for each batch. */
private abstract class BufferVector(kind: DataType, vector: FieldVector) extends PlainVector(kind) {
  private var validity = 0L
  private var nulls = 0

  def load(): Unit = {
    nulls = vector.getNullCount
    validity = vector.getValidityBuffer.memoryAddress()
  }
  override def hasNull: Boolean = nulls > 0
  override def numNulls(): Int = nulls
  override def isNullAt(row: Int): Boolean =
    nulls > 0 && (Platform.getByte(null, validity + (row >> 3)) & (1 << (row & 7))) == 0
}

/** A column with values; a nested one has children instead. */
private abstract class ValuesVector(kind: DataType, vector: FieldVector) extends BufferVector(kind, vector) {
  protected var data = 0L

  override def load(): Unit = { super.load(); data = vector.getDataBuffer.memoryAddress() }
}

/** Values of one width. */
private final class FixedVector(kind: DataType, vector: FieldVector) extends ValuesVector(kind, vector) {
  override def getByte(row: Int): Byte = Platform.getByte(null, data + row)
  override def getShort(row: Int): Short = Platform.getShort(null, data + (row.toLong << 1))
  override def getInt(row: Int): Int = Platform.getInt(null, data + (row.toLong << 2))
  override def getLong(row: Int): Long = Platform.getLong(null, data + (row.toLong << 3))
  override def getFloat(row: Int): Float = Platform.getFloat(null, data + (row.toLong << 2))
  override def getDouble(row: Int): Double = Platform.getDouble(null, data + (row.toLong << 3))
}

private final class BooleanVector(vector: FieldVector) extends ValuesVector(BooleanType, vector) {
  override def getBoolean(row: Int): Boolean = (Platform.getByte(null, data + (row >> 3)) & (1 << (row & 7))) != 0
}

/** Text and bytes, with offsets of 32 bits. */
private final class VaryingVector(kind: DataType, vector: BaseVariableWidthVector) extends ValuesVector(kind, vector) {
  private var offsets = 0L

  override def load(): Unit = { super.load(); offsets = vector.getOffsetBuffer.memoryAddress() }
  private def start(row: Int) = Platform.getInt(null, offsets + (row.toLong << 2))

  override def getUTF8String(row: Int): UTF8String = {
    val from = start(row)
    UTF8String.fromAddress(null, data + from, start(row + 1) - from)
  }
  override def getBinary(row: Int): Array[Byte] = {
    val from = start(row)
    val bytes = new Array[Byte](start(row + 1) - from)
    Platform.copyMemory(null, data + from, bytes, Platform.BYTE_ARRAY_OFFSET, bytes.length)
    bytes
  }
}

/** Decimals of 128 bits. */
private final class DecimalsVector(kind: DecimalType, vector: FieldVector) extends ValuesVector(kind, vector) {
  override def getDecimal(row: Int, precision: Int, scale: Int): Decimal = {
    val at = data + (row.toLong << 4)
    if (precision <= Decimal.MAX_LONG_DIGITS) Decimal.createUnsafe(Platform.getLong(null, at), precision, scale)
    else {
      val bytes = new Array[Byte](16)
      var i = 0
      while (i < 16) { bytes(15 - i) = Platform.getByte(null, at + i); i += 1 }
      Decimal.apply(new BigDecimal(new BigInteger(bytes), scale), precision, scale)
    }
  }
}

/** Lists, and maps as lists of pairs. */
private abstract class ListsVector(kind: DataType, vector: ListVector) extends BufferVector(kind, vector) {
  private var offsets = 0L

  override def load(): Unit = { super.load(); offsets = vector.getOffsetBuffer.memoryAddress() }
  protected def start(row: Int): Int = Platform.getInt(null, offsets + (row.toLong << 2))
  protected def length(row: Int): Int = start(row + 1) - start(row)
}

private final class ElementsVector(kind: ArrayType, vector: ListVector) extends ListsVector(kind, vector) {
  private val elements = Vectors.of(vector.getDataVector, kind.elementType)

  override def load(): Unit = { super.load(); Vectors.load(elements) }
  override def getArray(row: Int): ColumnarArray = new ColumnarArray(elements, start(row), length(row))
}

private final class PairsVector(kind: MapType, vector: MapVector) extends ListsVector(kind, vector) {
  private val pairs = vector.getDataVector.asInstanceOf[StructVector]
  private val keys = Vectors.of(pairs.getChildByOrdinal(0).asInstanceOf[FieldVector], kind.keyType)
  private val values = Vectors.of(pairs.getChildByOrdinal(1).asInstanceOf[FieldVector], kind.valueType)

  override def load(): Unit = { super.load(); Vectors.load(keys); Vectors.load(values) }
  override def getMap(row: Int): ColumnarMap = new ColumnarMap(keys, values, start(row), length(row))
}

private final class FieldsVector(kind: StructType, vector: StructVector) extends BufferVector(kind, vector) {
  private val fields = kind.fields.indices.map { i =>
    Vectors.of(vector.getChildByOrdinal(i).asInstanceOf[FieldVector], kind(i).dataType)
  }.toArray

  override def load(): Unit = { super.load(); fields.foreach(Vectors.load) }
  override def getChild(ordinal: Int): ColumnVector = fields(ordinal)
}

/** Rare types. Spark closes the columns of a batch after it; the memory is used for the next one. */
private final class RareVector(kind: DataType, vector: FieldVector) extends PlainVector(kind) {
  private val inner = new ArrowColumnVector(vector)

  override def hasNull: Boolean = inner.hasNull
  override def numNulls(): Int = inner.numNulls()
  override def isNullAt(row: Int): Boolean = inner.isNullAt(row)
  override def getLong(row: Int): Long = inner.getLong(row)
  override def getInt(row: Int): Int = inner.getInt(row)
  override def getBinary(row: Int): Array[Byte] = inner.getBinary(row)
  override def getUTF8String(row: Int): UTF8String = inner.getUTF8String(row)
  override def getDecimal(row: Int, precision: Int, scale: Int): Decimal = inner.getDecimal(row, precision, scale)
}

private[spark] object Vectors {

  /** The columns of a batch; load() must follow each batch. */
  def of(vector: FieldVector, kind: DataType): ColumnVector = vector match {
    case _: BigIntVector | _: IntVector | _: SmallIntVector | _: TinyIntVector | _: Float8Vector | _: Float4Vector |
        _: DateDayVector | _: TimeStampMicroTZVector | _: TimeStampMicroVector => new FixedVector(kind, vector)
    case _: BitVector => new BooleanVector(vector)
    case text: VarCharVector => new VaryingVector(kind, text)
    case bytes: VarBinaryVector if kind == BinaryType => new VaryingVector(kind, bytes)
    case _: DecimalVector => new DecimalsVector(kind.asInstanceOf[DecimalType], vector)
    case pairs: MapVector => new PairsVector(kind.asInstanceOf[MapType], pairs)
    case elements: ListVector => new ElementsVector(kind.asInstanceOf[ArrayType], elements)
    case fields: StructVector => new FieldsVector(kind.asInstanceOf[StructType], fields)
    case other => new RareVector(kind, other)
  }

  def load(vector: ColumnVector): Unit = vector match {
    case ours: BufferVector => ours.load()
    case _ =>
  }
}
