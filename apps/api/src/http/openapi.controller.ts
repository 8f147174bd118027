import { Controller, Get } from '@nestjs/common';
import { openApiDocument } from './openapi.js';

@Controller('api/v1/openapi.json')
export class OpenApiController {
  private document: ReturnType<typeof openApiDocument> | undefined;

  /** Made when it is asked for first: few starts of an api need it. */
  @Get()
  read() {
    return (this.document ??= openApiDocument());
  }
}
